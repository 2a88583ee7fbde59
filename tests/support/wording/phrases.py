"""Phrases that no text of the project contains, each with what to write instead."""

from __future__ import annotations

import re

_INSTEAD = {
    # Pronouns and clauses in the place of a domain noun.
    r"who(ever|mever)\b": "name the subject: the agent, the caller, the server …",
    r"(some|no|any|every)body\b": "name the subject, or use the passive",
    r"what(ever|soever)\b|whichever": "name the object; 'any'",
    r"what (is|was|are|were|has|had|have|may|must|can|could|would|does|did|comes?|came|becomes?|became"
    r"|waits?|runs?|ran|follows?|ends?|ended|belongs|happens to|needs|takes|fits|goes|stays|stands|starts"
    r"|began|begins) (?!wrong|different)": "name the object",
    r"(of|and|only|from|back|return|with|by|for|as|keep|keeps|see) what "
    r"(?!is wrong|to do)": "name the object",
    r"became of|becomes? of": "the result of, the outcome of",
    r"those (that|who|whose|which)\b": "repeat the noun",
    r"who (asks?|asked|waits?|waited|is gone|has gone|looks?|wants?|comes?|came)\b": "name the subject",
    # Archaic and translated forms.
    r"(tell|tells|told|telling)\b": "report, notify, show, distinguish",
    r"(say|says|said) (so|what|who|how|which|whether|that|it|nothing|of)\b": "show, state, report, specify",
    r"\bsaid\b": "sent, stated, reported",
    r"(go|goes|went|gone|going) on\b": "continue",
    r"(its|their|his|your|our) own\b": "separate, or leave it out",
    r"beside\b": "in addition to, next to",
    r"(?<!there )(is|are|was|were) no (?!longer\b|more\b|less\b|such\b)[a-z]+": "is not a …",
    r"no such\b": "name what does not exist, and what to do",
    r"to be had\b": "available",
    r"(is|are|was|were) none\b": "does not exist, is empty",
    r"there (is|are|was|were) (something|nothing|one)\b": "name the object",
    r"not there\b": "missing, absent",
    r"so many\b": "this many, at most N",
    r"(is|are|was|were|be|been|being) over\b": "has ended",
    r"(time|turn|moment|it|they) (has|have) come\b": "is due",
    r"(is|has|are|have) gone\b": "disconnected, was deleted, expired",
    r"heard\b|hears? (of|from)": "received, seen",
    r"written down|writ(e|es|ing) down|wrote down": "record",
    r"let(s|ting)? go\b": "release",
    r"in the way\b": "block",
    r"all the same\b": "nevertheless, or leave it out",
    r"for good\b": "permanently",
    r"(the|this|that) very\b": "the same",
    r"(hold|holds|held|is) good\b": "is valid",
    r"own accord\b": "automatically",
    r"lies\b": "is located",
    r"stands? (in|under|at|there|before|behind|for)\b": "is in, represents",
    r"any more\b": "any longer, now",
    r"is to (be|do|have|go|come)\b": "must, will",
    r"has to (be|do|have|go|come)\b": "must",
    r"(is|are|was|were) wanted\b|wanted by": "requested",
    r"(be|is|are|was|were|been) (given|handed) (to|back|over|out)\b": "assigned, returned",
    # Metaphors.
    r"(mailroom|deeds?|errands?|seats?|moulds?|company|companion|houses?|doors?|steward|messenger|correspondent"
    r"|undertaking|workshop|refitting|askers?|settler|waiting room|watchman)\b": "the glossary's term",
    r"look(s|ed|ing)?\b(?! ?-?up\b| (it|them|each) up\b| like\b|-?alike)": "check, query, read, find",
    r"(take|takes|taking|took) turns"
    r"|(its|their|a|each|every|next|whose|one|this|in) turns?\b": "round, order, in order",
    r"(in|of|out of|into) (the |its |their )?hands\b|hands of\b": "name the action",
    r"\bheads\b": "backlog entries",
    r"(dealt|dealing|dealer|deals? out)\b": "assign",
    r"hungry\b|\bborn\b": "eligible, created",
    r"(walk|walks|walked|walking)\b": "page through, iterate",
    r"housekeeping\b": "maintenance",
    r"aftermath|tormented?|spoilt|mended?\b": "plain verb: result, tested with faults, fixed",
}

PHRASES = re.compile(
    "|".join(f"(?P<p{number}>\\b(?:{pattern}))" for number, pattern in enumerate(_INSTEAD)), re.IGNORECASE
)
_ADVICE = list(_INSTEAD.values())


def advice_for(match: re.Match[str]) -> str:
    return _ADVICE[int(str(match.lastgroup).removeprefix("p"))]
