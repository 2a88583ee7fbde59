"""Jobs of other schedulers as job files, and what of them could not be carried over."""

from hetuflow_core.importers.crontab import import_crontab
from hetuflow_core.importers.result import Imported, as_yaml
from hetuflow_core.importers.systemd import import_timers

__all__ = ["Imported", "as_yaml", "import_crontab", "import_timers"]
