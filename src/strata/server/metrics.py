"""Numbers for Prometheus: vLLM's names where it has them, ours for the rest."""

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from strata.server.connection import Door
from strata.server.fleet.fleet import Fleet
from strata.server.monitor.machine import Processes, memory
from strata.server.monitor.numbers import Numbers
from strata.server.run import Run
from strata.server.served import Served
from strata.worker import State

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody asked for

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """Counters of one server.

    Args:
        fleet: the models; a model's name is a label of all their numbers.
        door: the connections.
    """

    def __init__(self, fleet: Fleet, door: Door) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engines(fleet))
        self._registry.register(_Connections(door))
        self._registry.register(_Machine(fleet))
        label = ("model_name",)

        def counter(name: str, meaning: str, *more: str) -> Counter:
            return Counter(name, meaning, (*label, *more), registry=self._registry)

        def histogram(name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, meaning, label, buckets=buckets, registry=self._registry)

        # What belongs to no model, an unknown route for example, counts as the first one's where there is only one.
        self._default = "" if fleet.several else fleet.first.name
        self._ended = counter("vllm:request_success", "Answers by the reason of their end.", "finished_reason")
        self._failed = counter("strata:request_errors", "Requests that failed, by kind.", "kind")
        self._responses = counter("strata:http_responses", "Answers of HTTP by route and status.", "route", "status")
        self._prompt = counter("vllm:prompt_tokens", "Tokens of prompts.")
        self._generated = counter("vllm:generation_tokens", "Tokens of answers.")
        self._queried = counter("vllm:prefix_cache_queries", "Tokens of prompts that were looked up.")
        self._hit = counter("vllm:prefix_cache_hits", "Tokens of prompts that were not read again.")
        self._drafted = counter("vllm:spec_decode_num_draft_tokens", "Tokens guessed ahead.")
        self._accepted = counter("vllm:spec_decode_num_accepted_tokens", "Guesses that were right.")
        self._reading = counter("strata:reading_seconds", "Time spent reading prompts.")
        self._read = counter("strata:read_tokens", "Tokens of prompts that were read.")
        self._first = histogram("vllm:time_to_first_token_seconds", "From request to first token.", _SECONDS)
        self._each = histogram("vllm:time_per_output_token_seconds", "Between two tokens.", _PER_TOKEN)
        self._whole = histogram("vllm:e2e_request_latency_seconds", "From request to end.", _SECONDS)
        self._queue = histogram("vllm:request_queue_time_seconds", "Waiting for a turn.", _SECONDS)
        for served in fleet.all:  # they are there from the start, with zeros
            for one in (self._prompt, self._generated, self._queried, self._hit, self._drafted, self._accepted):
                one.labels(served.name)
            for other in (self._reading, self._read, self._first, self._each, self._whole, self._queue):
                other.labels(served.name)

    def response(self, route: str, status: int, model: str = "") -> None:
        """An answer of HTTP was begun."""
        self._responses.labels(model or self._default, route, str(status)).inc()

    def ended(self, run: Run, seconds: float) -> None:
        """A request is over, however it ended."""
        model = run.served.name
        if run.error is not None:
            self._failed.labels(model, run.error.kind or "failed").inc()
        for answer in run.answers:
            usage = answer.usage
            reason = answer.reason or ("error" if run.error is not None else "abort")
            if reason != "error":
                self._ended.labels(model, {"cancelled": "abort"}.get(reason, reason)).inc()
            self._prompt.labels(model).inc(usage.prompt)
            self._queried.labels(model).inc(usage.prompt)
            self._hit.labels(model).inc(usage.cached)
            self._generated.labels(model).inc(usage.generated)
            self._drafted.labels(model).inc(usage.drafted)
            self._accepted.labels(model).inc(usage.accepted)
            self._reading.labels(model).inc(max(0.0, usage.reading_s))
            self._read.labels(model).inc(max(0, answer.progress.read - answer.progress.cached))
            self._queue.labels(model).observe(usage.waiting_s)
            if answer.first is not None:
                self._first.labels(model).observe(answer.first - run.began)
            if usage.generated > 1 and usage.decoding_s > 0:
                self._each.labels(model).observe(usage.decoding_s / (usage.generated - 1))
        self._whole.labels(model).observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)


class _Engines(Collector):
    """All engines: each number once, with a row for each model."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._engines = [_Engine(served) for served in fleet.all]

    def collect(self) -> Iterable[Metric]:
        """The numbers as they are now."""
        found: dict[str, Metric] = {}
        for engine in self._engines:
            for metric in engine.collect():
                if metric.name in found:
                    found[metric.name].samples += metric.samples
                else:
                    found[metric.name] = metric
        yield from found.values()
        past, fleet = self._fleet.history, self._fleet
        waiting = {served.name: float(fleet.waiting(served)) for served in fleet.all}
        yield _gauge("strata:model_requests_waiting", "Requests that wait until their model is loaded.", waiting)
        yield _counter("strata:model_loads", "Loads on demand.", {m: p.loads for m, p in past.items()})
        yield _counter("strata:model_load_failures", "Loads that failed.", {m: p.failures for m, p in past.items()})
        yield _counter("strata:model_unloads", "Times it was unloaded.", {m: p.unloads for m, p in past.items()})
        yield _counter("strata:model_load_seconds", "Time that loads took.", {m: p.seconds for m, p in past.items()})


class _Engine(Collector):
    """What the engine says of itself, as of its last sign of life."""

    def __init__(self, served: Served) -> None:
        self._served, self._model = served, served.name

    def collect(self) -> Iterable[Metric]:
        """The numbers as they are now."""
        status = self._served.status
        for name, meaning, value in (
            ("vllm:num_requests_running", "Requests that are read or answered.", status.running),
            ("vllm:num_requests_waiting", "Requests that wait.", status.waiting),
            ("strata:engine_loaded_share", "How much of the model is loaded.", status.loaded),
            ("strata:engine_silent_seconds", "Since the engine's last sign of life.", status.silent),
        ):
            yield _gauge(name, meaning, {self._model: float(value)})
        yield _counter("strata:engine_restarts", "Starts after a death.", {self._model: float(status.restarts)})
        state = GaugeMetricFamily("strata:engine_state", "1 for the state it is in.", labels=["model_name", "state"])
        for known in State:
            state.add_metric([self._model, known], float(status.state is known))
        yield state
        yield _counter("strata:engine_stalls", "Silences of five seconds or more.", {self._model: float(status.stalls)})
        stats = self._served.client.stats
        numbers = Numbers.of(stats)
        for name, meaning, speed in (
            ("vllm:avg_prompt_throughput_toks_per_s", "Tokens of prompts read a second, now.", numbers.read_speed),
            ("vllm:avg_generation_throughput_toks_per_s", "Tokens of answers a second, now.", numbers.answer_speed),
        ):
            yield _gauge(name, meaning, {self._model: float(speed if status.ready else 0.0)})
        yield from self._drafts(numbers)
        yield from self._work(numbers)
        yield _gauge(
            "strata:vram_overcommitted",
            "1 where a GPU's memory seems to be over-committed.",
            {self._model: float(bool(numbers.overcommit))},
        )
        told = {"drafts", "sources", "experts", "phases", "slots", "slots_held", "slot_experts", "slot_bytes"}
        for name, value in sorted(_flat({name: value for name, value in stats.items() if name not in told})):
            yield _gauge(f"strata:scheduler_{name}", "A counter of the scheduler.", {self._model: value})

    def _drafts(self, numbers: Numbers) -> Iterable[Metric]:
        """Guesses by their place behind the newest token, which vLLM counts from 0, and by where they come from."""
        for name, meaning, values in (
            ("strata:draft_tokens_per_pos", "Tokens guessed at this place.", numbers.drafts.get("offered", ())),
            (
                "vllm:spec_decode_num_accepted_tokens_per_pos",
                "Guesses at this place that were right.",
                numbers.drafts.get("accepted", ()),
            ),
        ):
            family = CounterMetricFamily(name, meaning, labels=["model_name", "position"])
            for place, value in enumerate(values):
                family.add_metric([self._model, str(place)], value)
            yield family
        for place, (name, meaning) in enumerate(
            (
                ("strata:draft_tokens_by_source", "Tokens guessed, by where the guess comes from."),
                ("strata:draft_accepted_by_source", "Guesses that were right."),
            )
        ):
            family = CounterMetricFamily(name, meaning, labels=["model_name", "source"])
            for source, counts in numbers.sources.items():
                family.add_metric([self._model, source], counts[place])
            yield family

    def _work(self, numbers: Numbers) -> Iterable[Metric]:
        for name, meaning, value in (
            ("strata:expert_slots", "Experts that a GPU's memory has room for.", numbers.slots),
            ("strata:expert_slots_held", "Experts that lie there.", numbers.slots_held),
            ("strata:expert_slot_bytes", "Memory of that room.", numbers.slot_bytes),
        ):
            if numbers.slot_experts:
                yield _gauge(name, meaning, {self._model: float(value)})
        experts = CounterMetricFamily(
            "strata:expert_hits", "Experts visited, by where they were found.", labels=["model_name", "tier"]
        )
        for tier, hits in numbers.experts.items():
            experts.add_metric([self._model, tier], hits)
        yield experts
        phases = CounterMetricFamily(
            "strata:engine_seconds", "Time of windows and passes by phase.", labels=["model_name", "phase"]
        )
        for phase, seconds in numbers.phases.items():
            phases.add_metric([self._model, phase], seconds)
        yield phases


class _Machine(Collector):
    """Memory and processes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._processes = Processes()

    def collect(self) -> Iterable[Metric]:
        """The numbers as they are now."""
        found = memory()
        ram = GaugeMetricFamily("strata:ram_bytes", "Main memory.", labels=["what"])
        for what, value in (("total", found.total), ("available", found.available), ("limit", found.limit)):
            if value is not None:
                ram.add_metric([what], value)
        yield ram
        resident = GaugeMetricFamily(
            "strata:process_resident_bytes", "Memory of a process.", labels=["process", "name"]
        )
        for process in self._processes.look((served.name, served.status.pid) for served in self._fleet.all):
            resident.add_metric([process.kind, process.name], process.resident)
        yield resident


class _Connections(Collector):
    """Who is there, whatever the model."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def collect(self) -> Iterable[Metric]:
        """The numbers as they are now."""
        door = self._door
        yield GaugeMetricFamily("strata:connections", "Open connections.", value=len(door))
        yield CounterMetricFamily("strata:connections_refused", "Connections beyond the limit.", value=door.refused)
        yield CounterMetricFamily(
            "strata:connections_dropped", "Connections that rested and were closed for new ones.", value=door.dropped
        )
        yield CounterMetricFamily("strata:connections_garbled", "Connections with what is no HTTP.", value=door.garbled)


def _gauge(name: str, meaning: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=["model_name"])
    for model, value in values.items():
        family.add_metric([model], value)
    return family


def _counter(name: str, meaning: str, values: dict[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, meaning, labels=["model_name"])
    for model, value in values.items():
        family.add_metric([model], value)
    return family


def _flat(values: dict[str, Any], before: str = "") -> Iterable[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}_")
        elif isinstance(value, int | float):
            yield f"{before}{name}", float(value)
