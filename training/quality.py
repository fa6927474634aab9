"""Next-token KL of plans to the exact cache."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Score:
    """Means over the scored positions, in nats; p_agree: how often the likeliest token is the same."""

    kl: float
    agree: float

    def __str__(self):
        return f"KL {self.kl:.4f}  top-1 {self.agree:.3f}"


@torch.no_grad()
def exact_log_p(model, tokens, first):
    """[B, T - first, vocab] log-probabilities with the exact cache; positions before `first` are not scored."""
    return model.head(model.run_layers(model.embed(tokens))[:, first:]).log_softmax(-1)


def kl(log_p, log_q):
    return (log_p.exp() * (log_p - log_q)).sum(-1)


@torch.no_grad()
def score(model, tokens, log_p, plan, first, **reader):
    """The Score of `plan` on tokens [B, T], against log_p = exact_log_p(model, tokens, first)."""
    kls, agree = [], []
    for context, exact in zip(tokens, log_p):
        x = model.run_layers(
            model.embed(context[None]), plan, reader=model.reader(len(context), **reader)
        )
        log_q = model.head(x[:, first:]).log_softmax(-1)[0]
        kls.append(kl(exact, log_q))
        agree.append((exact.argmax(-1) == log_q.argmax(-1)).float())
    return Score(torch.cat(kls).mean().item(), torch.cat(agree).mean().item())
