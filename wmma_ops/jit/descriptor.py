"""The kernel descriptor: 64 bytes beside each kernel, by which AMD's hardware starts its waves.

Read into the names that the assembler's directives have (.amdhsa_…), as LLVM's "User Guide for AMDGPU Backend" lays it out.
"""

import struct

SIZE = 64
_HEAD = struct.Struct("<IIIxxxxq20xIIIHH4x")

# Bits of its words: name -> (lowest, how many).
_RSRC1 = {
    "float_round_mode_32": (12, 2),
    "float_round_mode_16_64": (14, 2),
    "float_denorm_mode_32": (16, 2),
    "float_denorm_mode_16_64": (18, 2),
    "fp16_overflow": (26, 1),
}
_RSRC1_TO_GFX11 = {"dx10_clamp": (21, 1), "ieee_mode": (23, 1)}  # other things since
_RSRC1_FROM_GFX10 = {"workgroup_processor_mode": (29, 1)}
_RSRC2 = {
    "enable_private_segment": (0, 1),
    "user_sgpr_count": (1, 5),
    "system_sgpr_workgroup_id_x": (7, 1),
    "system_sgpr_workgroup_id_y": (8, 1),
    "system_sgpr_workgroup_id_z": (9, 1),
    "system_sgpr_workgroup_info": (10, 1),
    "system_vgpr_workitem_id": (11, 2),
}
_PROPERTIES = {
    "user_sgpr_private_segment_buffer": (0, 1),
    "user_sgpr_dispatch_ptr": (1, 1),
    "user_sgpr_queue_ptr": (2, 1),
    "user_sgpr_kernarg_segment_ptr": (3, 1),
    "user_sgpr_dispatch_id": (4, 1),
    "user_sgpr_flat_scratch_init": (5, 1),
    "user_sgpr_private_segment_size": (6, 1),
    "wavefront_size32": (10, 1),
    "uses_dynamic_stack": (11, 1),
}
_PRELOAD = {"user_sgpr_kernarg_preload_length": (0, 7), "user_sgpr_kernarg_preload_offset": (7, 9)}


def read(content: bytes, target: str) -> dict[str, int]:
    """Its fields, and in `entry` how far from the descriptor the kernel's first instruction lies."""
    group, private, arguments, entry, rsrc3, rsrc1, rsrc2, properties, preload = _HEAD.unpack(content)

    def bits(word: int, fields: dict[str, tuple[int, int]]) -> dict[str, int]:
        return {name: word >> low & (1 << count) - 1 for name, (low, count) in fields.items()}

    cdna, unified = target.startswith("gfx9"), target.startswith(("gfx90a", "gfx94", "gfx95"))
    granule = 4 if cdna and not unified else 8
    found = {
        "entry": entry,
        "group_segment_fixed_size": group,
        "private_segment_fixed_size": private,
        "kernarg_size": arguments,
        "next_free_vgpr": ((rsrc1 & 63) + 1) * granule,
        **bits(rsrc1, _RSRC1),
        **({} if target.startswith("gfx12") else bits(rsrc1, _RSRC1_TO_GFX11)),
        **({} if cdna else bits(rsrc1, _RSRC1_FROM_GFX10)),
        **bits(rsrc2, _RSRC2),
        **bits(properties, _PROPERTIES),
    }
    if unified:
        found |= {"accum_offset": ((rsrc3 & 63) + 1) * 4, "tg_split": rsrc3 >> 16 & 1, **bits(preload, _PRELOAD)}
    return found
