"""Documents of kind `webhook`: one way, one secret, an address that can be one."""

from __future__ import annotations

from typing import Any

import pytest

from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import WebhookSpec, load_documents, raw_document, to_document

OUT = {"kind": "webhook", "name": "chat", "url": "https://chat.example/7", "secret": "chat"}
IN = {"kind": "webhook", "name": "in", "receives": {"event": "file.uploaded"}, "secret": "chat"}


def test_both_ways_are_read_and_written_back() -> None:
    for document in (OUT, IN, {**OUT, "events": ["failed", "failed"], "jobs": ["b", "a"], "enabled": False}):
        (spec,) = load_documents([raw_document(document)])
        assert isinstance(spec, WebhookSpec)
        assert load_documents([raw_document(to_document(spec))]) == [spec]
    assert spec.events == ("failed",)
    assert spec.jobs == ("a", "b")


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        ({**OUT, "url": None}, "", "either url or receives"),
        ({**OUT, "receives": {"event": "a"}}, "", "either url or receives"),
        ({**OUT, "secret": None}, "", '"secret" is missing'),
        ({**OUT, "url": "ftp://a"}, "url", "http or https"),
        ({**OUT, "url": "https://"}, "url", "http or https"),
        ({**OUT, "url": "https://a b/"}, "url", "http or https"),
        ({**OUT, "url": "https://me:pw@a/"}, "url", "user or password"),
        ({**OUT, "events": ["exploded"]}, "events[0]", "not allowed here"),
        ({**IN, "jobs": ["a"]}, "jobs", "for webhooks with a url"),
        ({**IN, "receives": {}}, "receives", '"event" is missing'),
        ({**OUT, "colour": "red"}, "colour", "not a known key"),
    ],
)
def test_rules_of_webhooks(document: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_documents([raw_document(document)])
    assert message in {fault.field: fault.message for fault in refused.value.faults}[field]
