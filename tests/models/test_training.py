"""Training of swapped models: 200 steps that end where eager ones do, and what training loops ask of gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F
from op_counts import ran
from torch import nn

import wmma_ops

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed; it comes with the extra models"
)

from wmma_ops.integrations import transformers as integration  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = 200
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


class DiTBlock(nn.Module):
    """As DiT's: what the condition says scales, shifts and gates both halves."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = (nn.LayerNorm(width, elementwise_affine=False) for _ in "12")
        self.qkv, self.projected = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, condition):
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(6, -1)
        rows = self.first(x) * (1 + scale) + shift
        q, k, v = self.qkv(rows).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = wmma_ops.attention(q, k, v)[0] if self.is_ours else F.scaled_dot_product_attention(q, k, v)
        x = x + gate * self.projected(out.transpose(1, 2).flatten(2))
        return x + gate2 * self.mlp(self.second(x) * (1 + scale2) + shift2)

    is_ours = False


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(DiTBlock() for _ in "12")
        self.last = nn.Linear(32, 8)

    def forward(self, x, condition, wanted):
        for block in self.blocks:
            x = block(x, condition)
        return F.mse_loss(self.last(x), wanted)


def _llama():
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=61, max_position_embeddings=64)
    return transformers.LlamaForCausalLM(config)


def _llama_batch():
    words = torch.randint(0, 61, (4, 24), device=DEVICE)
    return {"input_ids": words, "labels": words}


def _vit():
    config = transformers.ViTConfig(**SMALL, image_size=16, patch_size=4, num_labels=5)
    return transformers.ViTForImageClassification(config)


def _vit_batch():
    return {
        "pixel_values": torch.randn(4, 3, 16, 16, device=DEVICE),
        "labels": torch.randint(0, 5, (4,), device=DEVICE),
    }


def _dit_batch():
    shapes = {"x": (4, 24, 32), "condition": (4, 32), "wanted": (4, 24, 8)}
    return {name: torch.randn(shape, device=DEVICE) for name, shape in shapes.items()}


def _lora():
    peft = pytest.importorskip("peft", reason="peft is not installed; it comes with the extra test")
    return peft.get_peft_model(_llama(), peft.LoraConfig(r=16, target_modules="all-linear"))


MODELS = {
    "Llama": (_llama, _llama_batch),
    "ViT": (_vit, _vit_batch),
    "DiT": (DiT, _dit_batch),
    "LoRA": (_lora, _llama_batch),
}


def _made(name):
    torch.manual_seed(0)
    model, batch = MODELS[name][0]().to(DEVICE).train(), MODELS[name][1]
    batches = [batch() for _ in range(4)]
    return model, batches


def _ours(model):
    swapped = copy.deepcopy(model)
    wmma_ops.swap_(swapped)
    if hasattr(swapped, "set_attn_implementation"):
        integration.register()
        swapped.set_attn_implementation("wmma")
    for module in swapped.modules():
        if isinstance(module, DiTBlock):
            module.is_ours = True
    return swapped


def _loss(model, batch):
    found = model(**batch)
    return found if isinstance(found, torch.Tensor) else found.loss


def _losses(model, batches):
    optimizer = torch.optim.AdamW([x for x in model.parameters() if x.requires_grad], lr=3e-3)
    losses = []
    for step in range(STEPS):
        loss = _loss(model, batches[step % len(batches)])
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.tensor(losses)


def _rounded_otherwise(model, seed):
    """The same but for the last bit of each parameter."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            up = torch.rand(parameter.shape, generator=generator).to(DEVICE) < 0.5
            towards = torch.where(up, torch.inf, -torch.inf).to(parameter.dtype)
            parameter.copy_(torch.nextafter(parameter, towards))
    return other


def _how_far(found, model, batches):
    """From an eager run's losses: as a multiple of what runs are apart that are rounded otherwise, or of 1e-4 of a loss."""
    eager = _losses(copy.deepcopy(model), batches)
    assert eager[-1] < 0.9 * eager[0], "it learns nothing"
    noise = max((_losses(_rounded_otherwise(model, seed), batches) - eager).abs().max() for seed in (1, 2, 3))
    return ((found - eager).abs().max() / max(noise, 1e-4 * eager[0])).item()


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_200_steps_end_where_eager_ones_do(name):
    model, batches = _made(name)
    with ran() as counts:
        found = _losses(_ours(model), batches)
    assert sum(counts.values()) > 2 * STEPS
    assert _how_far(found, model, batches) < 3


@pytest.mark.full
def test_steps_by_wrong_gradients_end_elsewhere():
    model, batches = _made("DiT")
    ours = _ours(model)
    ours.blocks[0].mlp[0].weight.register_hook(lambda grad: grad + 0.01 * grad.roll(1))
    assert _how_far(_losses(ours, batches), model, batches) > 6


# ------------------------------------------------------------------------------------------- what loops ask of gradients


def _gradients(model):
    return {name: x.grad for name, x in model.named_parameters() if x.grad is not None}


def _near(found, want):
    assert found.keys() == want.keys()
    assert want
    for name, x in found.items():
        torch.testing.assert_close(x, want[name], atol=2e-5, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture(params=["Llama", "DiT"])
def both(request):
    model, batches = _made(request.param)
    return _ours(model), model, batches


def test_gradients_accumulate_and_are_dropped(both):
    ours, eager, batches = both
    for model in (ours, eager):
        for batch in batches[:3]:
            (_loss(model, batch) / 3).backward()
    _near(_gradients(ours), _gradients(eager))
    kept = _gradients(ours)
    ours.zero_grad(set_to_none=False)
    assert all(x is kept[name] and not x.any() for name, x in _gradients(ours).items())
    _loss(ours, batches[0]).backward()
    eager.zero_grad(set_to_none=True)
    _loss(eager, batches[0]).backward()
    _near(_gradients(ours), _gradients(eager))
    ours.zero_grad(set_to_none=True)
    assert not _gradients(ours)


def test_hooks_see_each_gradient_once(both):
    """As an optimizer that steps within the backward pass: the gradient is gone when the pass goes on."""
    ours, eager, batches = both
    seen, of_leaves = {}, {}

    def taken(parameter, name):
        assert name not in seen
        seen[name] = parameter.grad.clone()
        parameter.grad = None

    def doubled(grad, name):
        of_leaves[name] = grad
        return 2 * grad

    for name, parameter in ours.named_parameters():
        parameter.register_hook(lambda grad, name=name: doubled(grad, name))
        parameter.register_post_accumulate_grad_hook(lambda parameter, name=name: taken(parameter, name))
    _loss(ours, batches[0]).backward()
    _loss(eager, batches[0]).backward()
    assert not _gradients(ours)
    _near(of_leaves, _gradients(eager))
    _near(seen, {name: 2 * x for name, x in _gradients(eager).items()})


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(both, reentrant):
    ours, eager, batches = both
    if isinstance(eager, DiT):
        for model in (ours, eager):
            for block in model.blocks:
                forward = block.forward
                block.forward = lambda *given, forward=forward: torch.utils.checkpoint.checkpoint(
                    forward, *given, use_reentrant=reentrant
                )
        batches[0]["x"].requires_grad_()
    else:
        for model in (ours, eager):
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
    for model in (ours, eager):
        _loss(model, batches[0]).backward()
    _near(_gradients(ours), _gradients(eager))


def test_a_scaler_beneath_autocast(both):
    """Of float16: a step that overflows is left out, and the others are as without a scale."""
    ours, eager, batches = both
    steps = {}
    for of, model in (("ours", ours), ("eager", eager)):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**40)
        scales = []
        for batch in (batches * 12)[:40]:
            with torch.autocast(DEVICE, torch.float16):
                loss = _loss(model, batch)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scales.append(scaler.get_scale())
        steps[of] = scales, loss.item()
    assert steps["ours"][0][-1] < 2.0**30
    assert abs(len(set(steps["ours"][0])) - len(set(steps["eager"][0]))) <= 2  # a step may overflow in one alone
    assert abs(steps["ours"][1] - steps["eager"][1]) < 0.02 * steps["eager"][1]
