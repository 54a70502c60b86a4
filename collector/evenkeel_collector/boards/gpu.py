"""The GPUs, from NVIDIA's dcgm-exporter and its default counters."""

from __future__ import annotations

from evenkeel_collector.boards.board_model import Board, BoardRow, Panel, PanelKind, Prom, Variable

_GPU = 'Hostname=~"$host"'
_LEGEND = "{{Hostname}} {{gpu}}"


def _each(metric: str) -> Prom:
    return Prom(f"max by (Hostname, gpu) ({metric}{{{_GPU}}})", _LEGEND)


_USE = BoardRow(
    "Use",
    (
        Panel(
            "GPU utilization",
            "Share of time in which a kernel ran; says nothing about how full the GPU was.",
            (_each("DCGM_FI_DEV_GPU_UTIL"),),
            "percent",
        ),
        Panel(
            "Memory in use",
            "Framebuffer in use. vLLM reserves its KV cache at start, so it should be level.",
            (_each("DCGM_FI_DEV_FB_USED"),),
            "decmbytes",
        ),
        Panel(
            "Memory bandwidth utilization",
            "Share of time in which memory was read or written; decoding is bound by it.",
            (_each("DCGM_FI_DEV_MEM_COPY_UTIL"),),
            "percent",
        ),
    ),
)

_CONDITION = BoardRow(
    "Condition",
    (
        Panel(
            "Power",
            "Level at its limit while clocks fall: the GPU is throttled.",
            (_each("DCGM_FI_DEV_POWER_USAGE"),),
            "watt",
        ),
        Panel("Temperature", "Of the GPU.", (_each("DCGM_FI_DEV_GPU_TEMP"),), "celsius"),
        Panel(
            "SM clock",
            "Falls when the GPU is idle, too hot, or at its power limit.",
            (_each("DCGM_FI_DEV_SM_CLOCK"),),
            "rotmhz",
        ),
        Panel(
            "Last XID error",
            "0 is none. NVIDIA's XID list says what each number means.",
            (_each("DCGM_FI_DEV_XID_ERRORS"),),
            "short", PanelKind.FIGURE, 12, 1, 1,
        ),
        Panel(
            "PCIe retries",
            "Per second; a steady rate is a bad slot or riser.",
            (Prom(
                "sum by (Hostname, gpu)"
                f" (rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{_GPU}}}[$__rate_interval]))",
                _LEGEND,
            ),),
            "ops", PanelKind.CHART, 12,
        ),
    ),
)  # fmt: skip

GPU = Board(
    "evenkeel-gpu",
    "evenkeel: GPU",
    "For the engineer who asks whether the hardware is the reason.",
    "engine",
    (
        Variable(
            "host",
            "label_values(DCGM_FI_DEV_GPU_UTIL, Hostname)",
            "Machines that run dcgm-exporter",
        ),
    ),
    (_USE, _CONDITION),
)
