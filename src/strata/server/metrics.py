"""Numbers for Prometheus: vLLM's names where it has them, ours for the rest."""

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from strata.server.monitor.machine import Processes, memory
from strata.server.monitor.numbers import Numbers
from strata.server.run import Run
from strata.worker import State, Status

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody asked for

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """Counters of one server.

    Args:
        status: of the engine, never waiting.
        stats: the engine's own counters as of its last sign of life.
        model: the model's name, a label of all.
    """

    def __init__(self, status: Callable[[], Status], stats: Callable[[], dict[str, Any]], model: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engine(status, stats, model))
        self._registry.register(_Machine(status, model))
        label = ("model_name",)

        def counter(name: str, meaning: str, *more: str) -> Counter:
            return Counter(name, meaning, (*label, *more), registry=self._registry)

        def histogram(name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, meaning, label, buckets=buckets, registry=self._registry).labels(model)

        self._model = model
        self._ended = counter("vllm:request_success", "Answers by the reason of their end.", "finished_reason")
        self._failed = counter("strata:request_errors", "Requests that failed, by kind.", "kind")
        self._responses = counter("strata:http_responses", "Answers of HTTP by route and status.", "route", "status")
        self._prompt = counter("vllm:prompt_tokens", "Tokens of prompts.").labels(model)
        self._generated = counter("vllm:generation_tokens", "Tokens of answers.").labels(model)
        self._queried = counter("vllm:prefix_cache_queries", "Tokens of prompts that were looked up.").labels(model)
        self._hit = counter("vllm:prefix_cache_hits", "Tokens of prompts that were not read again.").labels(model)
        self._drafted = counter("vllm:spec_decode_num_draft_tokens", "Tokens guessed ahead.").labels(model)
        self._accepted = counter("vllm:spec_decode_num_accepted_tokens", "Guesses that were right.").labels(model)
        self._reading = counter("strata:reading_seconds", "Time spent reading prompts.").labels(model)
        self._read = counter("strata:read_tokens", "Tokens of prompts that were read.").labels(model)
        self._first = histogram("vllm:time_to_first_token_seconds", "From request to first token.", _SECONDS)
        self._each = histogram("vllm:time_per_output_token_seconds", "Between two tokens.", _PER_TOKEN)
        self._whole = histogram("vllm:e2e_request_latency_seconds", "From request to end.", _SECONDS)
        self._queue = histogram("vllm:request_queue_time_seconds", "Waiting for a turn.", _SECONDS)

    def response(self, route: str, status: int) -> None:
        """An answer of HTTP was begun."""
        self._responses.labels(self._model, route, str(status)).inc()

    def ended(self, run: Run, seconds: float) -> None:
        """A request is over, however it ended."""
        if run.error is not None:
            self._failed.labels(self._model, run.error.kind or "failed").inc()
        for answer in run.answers:
            usage = answer.usage
            reason = answer.reason or ("error" if run.error is not None else "abort")
            if reason != "error":
                self._ended.labels(self._model, {"cancelled": "abort"}.get(reason, reason)).inc()
            self._prompt.inc(usage.prompt)
            self._queried.inc(usage.prompt)
            self._hit.inc(usage.cached)
            self._generated.inc(usage.generated)
            self._drafted.inc(usage.drafted)
            self._accepted.inc(usage.accepted)
            self._reading.inc(max(0.0, usage.reading_s))
            self._read.inc(max(0, answer.progress.read - answer.progress.cached))
            self._queue.observe(usage.waiting_s)
            if answer.first is not None:
                self._first.observe(answer.first - run.began)
            if usage.generated > 1 and usage.decoding_s > 0:
                self._each.observe(usage.decoding_s / (usage.generated - 1))
        self._whole.observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)


class _Engine(Collector):
    """What the engine says of itself, as of its last sign of life."""

    def __init__(self, status: Callable[[], Status], stats: Callable[[], dict[str, Any]], model: str) -> None:
        self._status, self._stats, self._model = status, stats, model

    def collect(self) -> Iterable[Metric]:
        """The numbers as they are now."""
        status = self._status()
        for name, meaning, value in (
            ("vllm:num_requests_running", "Requests that are read or answered.", status.running),
            ("vllm:num_requests_waiting", "Requests that wait.", status.waiting),
            ("strata:engine_loaded_share", "How much of the model is loaded.", status.loaded),
            ("strata:engine_silent_seconds", "Since the engine's last sign of life.", status.silent),
        ):
            yield self._gauge(name, meaning, value)
        yield self._counter("strata:engine_restarts", "Starts after a death.", status.restarts)
        state = GaugeMetricFamily("strata:engine_state", "1 for the state it is in.", labels=["model_name", "state"])
        for known in State:
            state.add_metric([self._model, known], float(status.state is known))
        yield state
        yield self._counter("strata:engine_stalls", "Silences of five seconds or more.", status.stalls)
        stats = self._stats()
        numbers = Numbers.of(stats)
        for name, meaning, speed in (
            ("vllm:avg_prompt_throughput_toks_per_s", "Tokens of prompts read a second, now.", numbers.read_speed),
            ("vllm:avg_generation_throughput_toks_per_s", "Tokens of answers a second, now.", numbers.answer_speed),
        ):
            yield self._gauge(name, meaning, speed if status.ready else 0.0)
        yield from self._drafts(numbers)
        yield from self._work(numbers)
        told = {"drafts", "sources", "experts", "phases"}
        for name, value in sorted(_flat({name: value for name, value in stats.items() if name not in told})):
            yield self._gauge(f"strata:scheduler_{name}", "A counter of the scheduler.", value)

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

    def _counter(self, name: str, meaning: str, value: float) -> CounterMetricFamily:
        family = CounterMetricFamily(name, meaning, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def _gauge(self, name: str, meaning: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, meaning, labels=["model_name"])
        family.add_metric([self._model], value)
        return family


class _Machine(Collector):
    """Memory and processes."""

    def __init__(self, status: Callable[[], Status], model: str) -> None:
        self._status, self._model = status, model
        self._processes = Processes()

    def collect(self) -> Iterable[Metric]:
        """The numbers as they are now."""
        found = memory()
        ram = GaugeMetricFamily("strata:ram_bytes", "Main memory.", labels=["what"])
        for what, value in (("total", found.total), ("available", found.available), ("limit", found.limit)):
            if value is not None:
                ram.add_metric([what], value)
        yield ram
        resident = GaugeMetricFamily("strata:process_resident_bytes", "Memory of a process.", labels=["process"])
        for process in self._processes.look([(self._model, self._status().pid)]):
            resident.add_metric([process.kind], process.resident)
        yield resident


def _flat(values: dict[str, Any], before: str = "") -> Iterable[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}_")
        elif isinstance(value, int | float):
            yield f"{before}{name}", float(value)
