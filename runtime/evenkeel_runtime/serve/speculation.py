"""Set up the speculation hook: probe vLLM, choose the flags, build the server side."""

from __future__ import annotations

import argparse
import logging
from collections.abc import AsyncGenerator
from importlib.metadata import entry_points
from random import Random
from typing import Any, get_args

from prometheus_client import REGISTRY

from evenkeel.settings import hand_down, load
from evenkeel_runtime.adapter.vllm import Find, computes_on_cpu, find_name, has_fields, takes
from evenkeel_runtime.request.canary import Canary
from evenkeel_runtime.request.drafts import SpeculationServer
from evenkeel_runtime.request.recorder import Recorder
from evenkeel_runtime.serve.speculation_metrics import SpeculationMetrics
from evenkeel_runtime.speculation.flags import speculation_flags
from evenkeel_runtime.speculation.settings import REPORTS_VARIABLE, SpeculationSettings

logger = logging.getLogger(__name__)

_WORKERS = "evenkeel_runtime.adapter.cpu_worker."
_EXACT_WORKER = f"{_WORKERS}ExactWorker"
# The method of vLLM's `SamplingParams` that rejects them.
_REFUSAL = "_validate_spec_decode"


def find_missing(find: Find = find_name) -> list[str]:
    """Return the names that the speculation hook needs and this vLLM lacks.

    Args:
        find: Returns a named attribute of a module, or None.
    """
    scheduler = find("vllm.v1.core.sched.scheduler", "Scheduler")
    request = find("vllm.v1.request", "Request")
    grammar = find("vllm.v1.structured_output", "StructuredOutputManager")
    needed = {
        "speculative method custom_class": "custom_class"
        in get_args(find("vllm.config.speculative", "SpeculativeMethod")),
        "SpeculativeConfig.num_speculative_tokens_per_batch_size": has_fields(
            find("vllm.config", "SpeculativeConfig"), "num_speculative_tokens_per_batch_size"
        ),
        "Scheduler.update_draft_token_ids": takes(
            getattr(scheduler, "update_draft_token_ids", None), "draft_token_ids"
        ),
        "Scheduler.make_spec_decoding_stats": takes(
            getattr(scheduler, "make_spec_decoding_stats", None),
            "num_draft_tokens",
            "num_accepted_tokens",
            "num_invalid_spec_tokens",
            "request_id",
        ),
        "Request.is_finished": callable(getattr(request, "is_finished", None)),
        "StructuredOutputManager.validate_tokens": takes(
            getattr(grammar, "validate_tokens", None), "request", "spec_tokens"
        ),
        "EngineCoreOutput.kv_transfer_params": has_fields(
            find("vllm.v1.engine", "EngineCoreOutput"), "kv_transfer_params"
        ),
    }
    return [name for name, is_there in needed.items() if not is_there]


def choose_flags(is_observed: bool, find: Find = find_name) -> tuple[str, ...]:
    """Return vLLM's flags for `--speculate auto`; none, with one warning, if this vLLM lacks it.

    Args:
        is_observed: Whether the request hook runs; it receives the engine's reports.
        find: Returns a named attribute of a module, or None.
    """
    missing = find_missing(find)
    if missing:
        logger.warning("speculation is off, this vLLM lacks: %s", ", ".join(missing))
        return ()
    processors = [each.name for each in entry_points(group="vllm.logits_processors")]
    if processors:
        # vLLM silently skips logits processors while it speculates.
        logger.warning("speculation is off: logits processors are installed: %s", processors)
        return ()
    if is_observed:
        # The engine process inherits it however vLLM starts it.
        hand_down(REPORTS_VARIABLE, "true")
    own = load(SpeculationSettings, {}).settings
    return speculation_flags(
        own.max_tokens, computes_on_cpu(), can_draft_ahead(find), own.answer_tokens
    ).as_flags()


def verify_exactly(args: argparse.Namespace, is_cpu: bool, find: Find = find_name) -> bool:
    """Fix draft verification on a CPU, and serve requests that vLLM would reject there.

    vLLM rejects `min_p` and `logit_bias` while it speculates. The worker chosen here serves such
    requests without drafts, whatever the proposer.

    Args:
        args: vLLM's parsed flags; `worker_cls` is set.
        is_cpu: Whether vLLM computes on the CPU.
        find: Returns a named attribute of a module, or None.

    Returns:
        Whether such requests are served.
    """
    if args.speculative_config is None or not is_cpu:
        return False
    params = find("vllm.sampling_params", "SamplingParams")
    if find("vllm.envs", "VLLM_USE_V2_MODEL_RUNNER") or not hasattr(params, _REFUSAL):
        return False
    if args.worker_cls == "auto":
        args.worker_cls = _EXACT_WORKER
    if not str(args.worker_cls).startswith(_WORKERS):
        return False
    setattr(params, _REFUSAL, lambda *_: None)
    return True


def can_draft_ahead(find: Find = find_name) -> bool:
    """Whether this is a GPU and this vLLM keeps drafts in a writable table."""
    platform = find("vllm.platforms", "current_platform")
    needed = (
        ("vllm.utils.torch_utils", "async_tensor_h2d"),
        ("vllm.v1.worker.gpu.model_runner", "GPUModelRunner"),
        ("vllm.v1.worker.gpu.states", "RequestState"),
    )
    return bool(
        platform is not None
        and platform.is_cuda()
        and "ngram_gpu" in get_args(find("vllm.config.speculative", "NgramGPUTypes"))
        and all(find(module, name) is not None for module, name in needed)
        and callable(
            getattr(
                find("vllm.v1.worker.gpu.spec_decode.ngram.speculator", "NgramGPUSpeculator"),
                "propose",
                None,
            )
        )
    )


class ServerReplay:
    """The canary's access to vLLM's engine client.

    Args:
        engine: The engine client, unobserved: a replay is not a client's request.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.has_priorities = engine.vllm_config.scheduler_config.policy == "priority"

    @property
    def has_only_text(self) -> bool:
        """Whether a prompt is token ids only: no images, no embeddings."""
        config = self._engine.vllm_config.model_config
        return not (
            config.is_multimodal_model or config.enable_prompt_embeds or config.is_encoder_decoder
        )

    def is_idle(self) -> bool:
        """Whether no request is running."""
        return not self._engine.output_processor.has_unfinished_requests()

    def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        """Answer a request."""
        outputs: AsyncGenerator[Any, None] = self._engine.generate(
            prompt, sampling_params, request_id, **options
        )
        return outputs


def build_server(engine: Any, recorder: Recorder, is_drafting: bool) -> SpeculationServer:
    """Return the server side of speculation, with its metrics registered.

    Args:
        engine: vLLM's engine client.
        recorder: Where the canary's results go.
        is_drafting: False if this vLLM cannot draft, which is counted as an error.
    """
    settings = load(SpeculationSettings, {}).settings
    replay = ServerReplay(engine)
    ratio = settings.canary_ratio if is_drafting and replay.has_only_text else 0.0
    canary = Canary(ratio, replay, recorder.record_canary, Random())
    server = SpeculationServer(canary)
    if not is_drafting:
        server.totals.engine = {"errors": 1}
    REGISTRY.register(SpeculationMetrics(server))
    return server
