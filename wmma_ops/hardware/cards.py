"""The names that people know their cards by, and the target of each; for chips that are no targets, why.

Which chip a card has is AMD's and LLVM's published table, and for NVIDIA's the compute capability of each.
"""

import difflib
import functools
import re

# Of a chip, the cards that have it. Written as they are sold; what is looked up is compared by `_plain`.
NAMES = {
    "gfx908": "Instinct MI100",
    "gfx90a": "Instinct MI210, MI250, MI250X",
    "gfx942": "Instinct MI300A, MI300X, MI300, MI308X, MI325X",
    "gfx950": "Instinct MI350X, MI355X, MI350, MI355",
    "gfx1100": "Radeon RX 7900 XTX, RX 7900 XT, RX 7900 GRE, RX 7900M, RX 7900, PRO W7900, PRO W7900 Dual Slot, PRO W7800",
    "gfx1101": "Radeon RX 7800 XT, RX 7800, RX 7700 XT, RX 7700, PRO W7700, PRO V710",
    "gfx1102": "Radeon RX 7600 XT, RX 7600, RX 7600S, RX 7600M, RX 7600M XT, RX 7700S, PRO W7600, PRO W7500",
    "gfx1103": "Radeon 780M, 760M, 740M, Phoenix, Hawk Point, Ryzen Z1 Extreme",
    "gfx1150": "Radeon 890M, 880M, Strix Point, Ryzen AI 9 HX 370",
    "gfx1151": "Radeon 8060S, 8050S, 8040S, Strix Halo, Ryzen AI Max+ 395, Ryzen AI Max+ PRO 395",
    "gfx1152": "Radeon 860M, 840M, Krackan Point",
    "gfx1200": "Radeon RX 9060 XT, RX 9060",
    "gfx1201": "Radeon RX 9070 XT, RX 9070 GRE, RX 9070, AI PRO R9700",
    "gfx900": "Radeon RX Vega 64, RX Vega 56, Vega Frontier Edition, Instinct MI25",
    "gfx906": "Radeon VII, Instinct MI50, MI60",
    "gfx803": "Radeon RX 460, RX 470, RX 480, RX 550, RX 560, RX 570, RX 580, RX 590",
    "gfx1010": "Radeon RX 5700 XT, RX 5700, RX 5600 XT, PRO W5700",
    "gfx1012": "Radeon RX 5500 XT, RX 5500, PRO W5500",
    "gfx1030": "Radeon RX 6950 XT, RX 6900 XT, RX 6800 XT, RX 6800, PRO W6800",
    "gfx1031": "Radeon RX 6750 XT, RX 6700 XT, RX 6700",
    "gfx1032": "Radeon RX 6650 XT, RX 6600 XT, RX 6600, PRO W6600",
    "gfx1034": "Radeon RX 6500 XT, RX 6400, PRO W6400",
    "gfx1035": "Radeon 680M, 660M, Rembrandt",
    "sm_70": "Tesla V100, Titan V",
    "sm_75": "Tesla T4, Titan RTX, GeForce RTX 2060, RTX 2070, RTX 2080, GTX 1650, GTX 1660",
    "sm_80": "NVIDIA A100, A800, A30",
    "sm_86": "NVIDIA A40, A16, A10, A10G, A2, RTX A6000, RTX A5500, RTX A5000, RTX A4500, RTX A4000, RTX A3000, RTX A2000, "
    "GeForce RTX 3090, RTX 3080, RTX 3070, RTX 3060, RTX 3050",
    "sm_89": "NVIDIA L40S, L40, L20, L4, RTX 6000 Ada, RTX 5000 Ada, RTX 4500 Ada, RTX 4000 Ada, RTX 4000 SFF Ada, "
    "RTX 2000 Ada, GeForce RTX 4090, RTX 4080, RTX 4070, RTX 4060, RTX 4050",
    "sm_90a": "NVIDIA H100, H200, H800, H20, GH200",
    "sm_100": "NVIDIA B100, B200, GB200",
    "sm_103": "NVIDIA B300, GB300",
    "sm_120": "GeForce RTX 5090, RTX 5080, RTX 5070, RTX 5060, RTX 5050, RTX PRO 6000 Blackwell, RTX PRO 5000 Blackwell",
    "sm_121": "NVIDIA GB10, DGX Spark",
}

# Generations, by the names that people give them, and a target of each: lane layouts are alike within one.
GENERATIONS = {
    "cdna1": "gfx908",
    "cdna2": "gfx90a",
    "cdna3": "gfx942",
    "cdna4": "gfx950",
    **dict.fromkeys(("rdna3", "gfx11", "11"), "gfx1100"),
    "rdna3.5": "gfx1151",
    **dict.fromkeys(("rdna4", "gfx12", "12"), "gfx1201"),
}

# Which emulated target stands for a chip of the same instructions and lane layouts, on which no test runs.
STANDS_FOR = {
    **dict.fromkeys(("gfx1101", "gfx1102", "gfx1103"), "gfx1100"),
    **dict.fromkeys(("gfx1150", "gfx1152", "gfx1153"), "gfx1151"),
    **dict.fromkeys(("gfx940", "gfx941"), "gfx942"),  # what MI300 was before it was sold
}

# Chips without kernels here, by their names, and what there is to say.
_WITHOUT = (
    (r"gfx101[0-3]", "is of RDNA 1 and has no matrix cores"),
    (r"gfx103[0-6]", "is of RDNA 2 and has no matrix cores"),
    (r"gfx[678]\d\w|gfx90[02469c]", "is of GCN and has no matrix cores"),
    (r"sm_1[0-2]\d[af]?", "is of Blackwell, for which no kernel here is compiled, and on which none has run"),
    (r"sm_[5-7]\d", "is older than Ampere, from which on there are kernels here"),
)
_WITH = {
    "gfx": "those of AMD with matrix cores are Instinct from MI100 (gfx908) and Radeon from the RX 7000 series (gfx1100) on",
    "sm_": "those of NVIDIA that are targets go from A100 (sm_80) to H200 (sm_90a)",
}
_BRANDS = re.compile(r"^(?:amd|ati|nvidia|radeon|instinct|geforce|tesla|ryzen|rtx|gtx|rx|pro|ai)+(?=\w)")
_BESIDE = re.compile(r"\(tm\)|\(r\)|\b\d+ ?gb\b|\bhbm\w*|\bmig\b.*|(?:\bw)?/.*")
_VARIANTS = re.compile(
    r"(?:ti|super|d|laptop|mobile|maxq|gpu|pcie|sxm\d?|nvl|oam|vf|graphics|generation|series|accelerator|workstation"
    r"|server|edition)+$"
)


def chip(name: str) -> str | None:
    """The chip of a card, a generation or a chip's own name, in whatever spelling; None where it is not known."""
    plain = _plain(name)
    own = re.sub(r"^sm(?=\d)", "sm_", plain)
    own = own if re.fullmatch(r"gfx\d+\w?|sm_\d+\w?", own) else None
    return _chips().get(plain) or _chips().get(_VARIANTS.sub("", plain)) or own


def why_not(name: str) -> str | None:
    """Why a known chip that is no target has no kernels, in one line, and what there is instead."""
    found = chip(name) or name.lower()
    asked = name if found == name.lower() else f"{name} ({found})"
    if stand_in := STANDS_FOR.get(found):
        return f"{asked} is no target; {stand_in} stands for it, with the same instructions and lane layouts"
    for pattern, what in _WITHOUT:
        if re.fullmatch(pattern, found):
            return f"{asked} {what}; {_WITH[found[:3]]}"
    return None


def near(name: str) -> list[str]:
    """The cards whose names are nearest to one that is not known, each with its chip."""
    close = difflib.get_close_matches(_plain(name), [*_sold()], n=3, cutoff=0.6)
    return [f"{_sold()[plain]} ({_chips()[plain]})" for plain in close]


def _plain(name: str) -> str:
    """Without what spellings differ in: case, signs, brands before it, and a memory's size behind."""
    text = re.sub(r"[^a-z0-9]", "", _BESIDE.sub(" ", name.lower().replace("™", "").replace("®", "")))
    return _BRANDS.sub("", text)


@functools.cache
def _sold() -> dict[str, str]:
    return {_plain(card): card.strip() for cards in NAMES.values() for card in cards.split(",")}


@functools.cache
def _chips() -> dict[str, str]:
    found = {_plain(card): name for name, cards in NAMES.items() for card in cards.split(",")}
    return found | {_plain(name): of for name, of in GENERATIONS.items()}
