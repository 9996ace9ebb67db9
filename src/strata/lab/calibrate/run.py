"""Part after part: what was measured is kept at once, and what cannot be measured keeps nothing else from being."""

from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime

from strata.lab.calibrate.work import Work
from strata.lab.rates.rounds import StoppedError
from strata.loading.calibration import Part, Record, Value

Told = Callable[[str, int, int], None]
"""What is measured now, measurements done, and measurements in all."""

LONGEST = 300
"""Letters of a reason."""


def run(
    works: Iterable[Work],
    record: Record,
    *,
    quick: bool,
    keep: Callable[[Record], object],
    told: Told = lambda *_: None,
    now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
) -> tuple[Record, bool, list[Part]]:
    """Measure.

    Args:
        works: parts in their order.
        record: what was known before; of this machine.
        quick: the short way.
        keep: called with the record after each part.
        told: called before each measurement.
        now: with a zone.

    Returns:
        The record, whether all was done (nobody asked to stop), and the parts as they were measured now.
    """
    works = list(works)
    total, done, found = sum(work.count for work in works), 0, []
    for work in works:
        values: list[Value] = []
        problems: list[str] = []
        stopped = False
        before = done
        try:
            with closing(work.items()) as items:  # type: ignore[type-var]  # generators close
                for item in items:
                    told(item.label, done, total)
                    try:
                        values += item.run()
                    except StoppedError:
                        raise
                    except Exception as error:  # noqa: BLE001  # whatever breaks one must not break the others
                        problems.append(f"{item.label}: {_reason(error)}")
                    done += 1
        except StoppedError:
            stopped = True
        except Exception as error:  # noqa: BLE001  # as above
            problems.append(_reason(error))
        done = before + work.count
        if values or problems:
            when = now().isoformat(timespec="seconds")
            part = Part(work.name, work.about(), when, quick, tuple(values), "; ".join(problems)[: 4 * LONGEST])
            found.append(part)
            record = record.with_part(part)
            keep(record)
        if stopped:
            return record, False, found
    return record, True, found


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
