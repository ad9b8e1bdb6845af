"""The loss of a drafter against the target's top K, fused with the output projection.

Only two things are needed of the student's whole vocabulary: the logarithm of the sum, and the softmax in
the gradient. So the logits of a chunk of tokens exist once, in the dtype of the hidden states, and both
gradients are made from them in the forward pass (as in Liger's fused linear cross entropy).

Per token, with p the target's and q the student's probabilities, T what lies outside of the top K:
  KL   = Σ_K p log(p / q) + p_T log(p_T / q_T)     the target's tail counts as one outcome
  TV   = 1 - Σ_K min(p, q)                         one minus the acceptance rate at temperature 1
  top  = -log q(argmax p)                          greedy agreement
Each has a gradient for logit j of the form a q_j + s_j with s only on the top K:
  KL:   a = Σ_K p - r Q,              s = r q - p          (Q = Σ_K q, r = p_T / q_T)
  TV:   a = Σ_K q [q < p],            s = -q [q < p]
  top:  a = 1,                        s = -1 on the first
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

_SMALLEST_TAIL = 1e-4  # the stored half-precision probabilities leave a tail that is no more exact


class LossWeights(NamedTuple):
    """Factors of the three parts."""

    kl: float = 0.3
    tv: float = 1.0
    top: float = 0.1


class Judged(NamedTuple):
    """Per token [N]: the loss, Σ min(p, q), whether the first choices agree; the gradient as `dense` [N] and
    `sparse` [N, K] (see above), and the student's probabilities of the top K [N, K]."""

    loss: Tensor
    accepted: Tensor
    agreed: Tensor
    dense: Tensor
    sparse: Tensor
    q: Tensor


def judge(logits: Tensor, log_sum: Tensor, ids: Tensor, p: Tensor, weights: LossWeights) -> Judged:
    """Loss and gradient coefficients. logits [N, vocab]; log_sum [N]; ids [N, K] int64; p [N, K] as wide as log_sum."""
    chosen = logits.gather(1, ids).to(log_sum.dtype)
    log_q = chosen - log_sum[:, None]
    q = log_q.exp()
    covered, student_covered = p.sum(1), q.sum(1)
    tail = (1 - covered).clamp_min(0)
    student_tail = (1 - student_covered).clamp_min(_SMALLEST_TAIL)
    ratio = (tail / student_tail).masked_fill(1 - student_covered < _SMALLEST_TAIL, 0.0)
    smaller = (q < p).to(q.dtype)

    kl = torch.xlogy(p, p).sum(1) - (p * log_q).sum(1) + torch.xlogy(tail, tail) - tail * student_tail.log()
    accepted = torch.minimum(p, q).sum(1)
    loss = weights.kl * kl + weights.tv * (1 - accepted) - weights.top * log_q[:, 0]

    dense = weights.kl * (covered - ratio * student_covered) + weights.tv * (q * smaller).sum(1) + weights.top
    sparse = weights.kl * (ratio[:, None] * q - p) - weights.tv * q * smaller
    first = torch.arange(q.shape[1], device=q.device) == 0
    sparse = sparse - weights.top * first.to(q.dtype)
    # The maximum is a step of log_sum as well: a compiler reads the logits once for both, unlike an argmax.
    highest = logits.to(log_sum.dtype).amax(1, keepdim=True)
    agreed = (chosen[:, :1] >= highest).squeeze(1).to(q.dtype)
    return Judged(loss, accepted, agreed, dense, sparse, q)


def chunk_gradient(
    logits: Tensor, ids: Tensor, p: Tensor, token_weights: Tensor, weights: LossWeights
) -> tuple[Tensor, Tensor]:
    """Weighted sums [3] of loss, acceptance and agreement, and the gradient of the loss sum for logits [N, vocab]."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    p, token_weights = p.to(wide), token_weights.to(wide)
    log_sum = torch.logsumexp(logits.to(wide), 1)
    judged = judge(logits, log_sum, ids, p, weights)
    dense = (judged.dense * token_weights)[:, None]
    gradient = (torch.exp(logits.to(wide) - log_sum[:, None]) * dense).to(logits.dtype)
    # Ids of a row are distinct: setting the final value is exact and needs no atomic addition.
    at_ids = judged.q * dense + judged.sparse * token_weights[:, None]
    gradient = gradient.scatter(1, ids, at_ids.to(logits.dtype))
    sums = torch.stack([judged.loss, judged.accepted, judged.agreed]) @ token_weights
    return sums, gradient


class _FusedHeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        ids: Tensor,
        p: Tensor,
        token_weights: Tensor,
        weights: LossWeights,
        chunk: int,
        gradient_of: Callable[..., tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        narrow = head.to(hidden.dtype)
        hidden_gradient, head_gradient = torch.empty_like(hidden), torch.zeros_like(head)
        sums = torch.zeros(3, dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
        for begin in range(0, hidden.shape[0], chunk):
            part = slice(begin, begin + chunk)
            logits = hidden[part] @ narrow.t()
            part_sums, gradient = gradient_of(logits, ids[part], p[part], token_weights[part], weights)
            del logits
            sums += part_sums
            torch.mm(gradient, narrow, out=hidden_gradient[part])
            head_gradient += gradient.t() @ hidden[part]
        ctx.save_for_backward(hidden_gradient, head_gradient)
        ctx.mark_non_differentiable(sums)
        return sums[0].clone(), sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, head_gradient = ctx.saved_tensors
        scale = gradients[0]
        return (
            hidden_gradient * scale.to(hidden_gradient.dtype),
            head_gradient * scale,
            None,
            None,
            None,
            None,
            None,
            None,
        )


def fused_head_loss(
    hidden: Tensor,
    head: Tensor,
    ids: Tensor,
    p: Tensor,
    token_weights: Tensor,
    weights: LossWeights,
    chunk: int = 8192,
    gradient_of: Callable[..., tuple[Tensor, Tensor]] = chunk_gradient,
) -> tuple[Tensor, Tensor]:
    """The loss (scalar, differentiable for `hidden` and `head`) and the sums [3] of loss, acceptance, agreement.

    hidden [N, width] in the dtype to compute in; head [vocab, width]; ids [N, K] int64; p [N, K];
    token_weights [N], which should add up to one. `gradient_of` is `chunk_gradient` or its compiled form.
    """
    return _FusedHeadLoss.apply(hidden, head, ids, p, token_weights, weights, chunk, gradient_of)
