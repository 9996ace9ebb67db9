"""Requests in the words of a snapshot: their numbers, and nothing of what they say."""

import time

from strata.server.monitor.snapshot import Done, Underway
from strata.server.run import Run


def dialect(path: str) -> str:
    """What a route's path is called: chat, completions, responses, messages."""
    return path.removeprefix("/v1").strip("/").split("/")[0]


def underway(run: Run, now: float) -> Underway:
    """A request at monotonic time `now`."""
    answers = run.answers
    firsts = [answer.first for answer in answers if answer.first is not None]
    speeds = [answer.speed for answer in answers if answer.speed is not None and not answer.over]
    begun = any(answer.progress.id for answer in answers)
    usages = [answer.usage for answer in answers]
    return Underway(
        id=run.name,
        model=run.served.name,
        dialect=dialect(run.path),
        state="answering" if firsts else "reading" if begun else "waiting",
        answers=len(answers),
        prompt=sum(usage.prompt for usage in usages),
        read=sum(answer.progress.read for answer in answers),
        cached=sum(answer.progress.cached for answer in answers),
        generated=sum(usage.generated for usage in usages),
        seconds=max(0.0, now - run.began),
        first=min(firsts) - run.began if firsts else None,
        speed=sum(speeds) if speeds else None,
    )


def done(run: Run, seconds: float) -> Done:
    """A request that has just ended and took so many seconds."""
    usages = [answer.usage for answer in run.answers]
    firsts = [answer.first for answer in run.answers if answer.first is not None]
    return Done(
        id=run.name,
        model=run.served.name,
        dialect=dialect(run.path),
        ended=time.time(),
        outcome=run.outcome,
        error="" if run.error is None else run.error.kind or run.error.code or str(run.error.status),
        answers=len(usages),
        prompt=sum(usage.prompt for usage in usages),
        cached=sum(usage.cached for usage in usages),
        generated=sum(usage.generated for usage in usages),
        drafted=sum(usage.drafted for usage in usages),
        accepted=sum(usage.accepted for usage in usages),
        waiting=max((usage.waiting_s for usage in usages), default=0.0),
        reading=max((usage.reading_s for usage in usages), default=0.0),
        answering=max((usage.decoding_s for usage in usages), default=0.0),
        first=min(firsts) - run.began if firsts else None,
        seconds=seconds,
    )
