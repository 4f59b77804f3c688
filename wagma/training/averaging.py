"""Averaging of gradients before the step that uses them."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import SupportsFloat

import torch
from torch.optim import Optimizer

from wagma.training.counters import Counters
from wagma.training.flat import FlatParameters
from wagma.training.joining import naming_join
from wagma.training.marks import GradientMarks
from wagma.training.policies.base import ComputePolicy
from wagma.training.scaling import scale_of, unscale
from wagma.training.stopping import had_samples
from wagma.training.wrapper import OptimizerWrapper


class AveragingOptimizer(OptimizerWrapper):
    """The part of a `wagma.DistributedOptimizer` that averages gradients on demand."""

    _parameters: FlatParameters
    _blocks: list[str]

    def __init__(self, inner: Optimizer, policy: ComputePolicy) -> None:
        super().__init__(inner)
        self._policy = policy
        self._algorithm = policy.algorithm
        self._counters = Counters()
        self._marks = GradientMarks()

    @abstractmethod
    def _check_step(self, call: str) -> None:
        """Check that a step is possible; otherwise refuse `call`."""

    @property
    def weight(self) -> float:
        """Weight of this rank's gradient in the next step.

        After each step it returns to 1; with `wagma.Cannikin` to the planned batch.

        Let ``.grad`` be the mean over this rank's w samples, tokens or micro-batches::

            opt.weight = len(inputs)
            loss(model(inputs), targets).backward()
            opt.step()

        Algorithms that average gradients compute sum(w g) / sum(w), the mean over the samples of
        all ranks (EagerSGD, which does not wait: sum(w g) / P); ``opt.outcome.weight`` is the sum
        of the weights. Algorithms that average models weight the models: WAGMA, ADPSGD and DPSGD by
        the step's weight, LocalSGD by the weights of all steps in a period. SGP takes no weights.

        With weight 0 the gradients are cleared without being read: the step is one without
        gradients of this rank (`wagma.algorithms.Algorithm.passive_step`), and a closure is not
        evaluated. If all weights are 0 nothing changes, and ``opt.outcome.weight`` is 0.

        Raises:
            TypeError: the weight is no number.
            ValueError: the weight is negative, not finite, or refused by the algorithm.
        """
        return self._algorithm.weight

    @weight.setter
    def weight(self, weight: SupportsFloat) -> None:
        try:
            if isinstance(weight, str | bytes):  # float() would accept "2"
                raise TypeError
            number = float(weight)
        except (TypeError, ValueError):
            raise TypeError(
                f"weight={weight!r} must be a number: the samples, tokens or micro-batches of the "
                "gradient"
            ) from None
        if not 0 <= number < math.inf:
            raise ValueError(f"weight={number} must be finite, and 0 or more; 0: no samples")
        self._algorithm.check_weight(number)
        self._algorithm.weight = number

    def average_gradients(self, scaler: torch.amp.GradScaler | None = None) -> None:
        """Replace every ``.grad`` by the mean over all ranks; the next `step` does not average.

        Clipping or logging between the two calls acts on the averages, as under DDP::

            loss.backward()
            opt.average_gradients()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()

        Collective; call it after the last backward pass of a step. It makes the version that the
        step would have made. An overflow then skips the step on all ranks.

        Args:
            scaler: the `torch.amp.GradScaler` that scaled the loss, if any; call this before
                ``scaler.unscale_``.

        Raises:
            RuntimeError: the algorithm averages models, or is EagerSGD (the message says what to do
                instead); the gradients are averages already; as by `step`.
            MismatchError: the scales differ between the ranks; on every rank.
            PeerError, StallError: see `wagma.collectives`.
        """
        self._check_step("average_gradients()")
        tensors = self._parameters.parameters
        if self._marks.averaged(tensors):
            raise RuntimeError(
                "average_gradients() twice before a step: the gradients are averages already; "
                "opt.zero_grad() drops them"
            )
        scale = 1.0 if scaler is None else scale_of(scaler, self)
        self._policy.begin_step(tensors, None)
        with naming_join(self._algorithm, self._blocks):
            self._algorithm.average_gradients(scale)
        self._algorithm.weight = self._algorithm.default_weight
        self._counters.see(self._algorithm.outcome)
        if self._nobody_had_samples():  # GradScaler needs gradients
            for tensor in tensors:
                tensor.grad = torch.zeros_like(tensor)
        self._marks.average(tensors, scaled=scaler is not None)

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> torch.Tensor:
        """Clip the averaged gradients, as `torch.nn.utils.clip_grad_norm_` does under DDP.

        Calls `average_gradients` first unless the gradients are averages already.

        Returns:
            The norm of the averages before clipping, the same on all ranks.
        """
        tensors = self._parameters.parameters
        if not self._marks.averaged(tensors):
            self.average_gradients()
        return torch.nn.utils.clip_grad_norm_(tensors, max_norm, norm_type, error_if_nonfinite)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as the inner optimizer does."""
        self._marks.drop()
        super().zero_grad(set_to_none)

    def _nobody_had_samples(self) -> bool:
        outcome = self._algorithm.outcome
        return outcome is not None and not had_samples(outcome.weight)

    def _step_on_averages(self, closure: Callable[[], float] | None) -> None:
        """Make the inner step with ``.grad`` as it is, the same on all ranks."""
        self._algorithm.check_open("step()")
        self._parameters.check()
        if self.weight != self._algorithm.default_weight:
            raise RuntimeError(
                f"weight={self.weight} after average_gradients(): set the weight before that call"
            )
        self._marks.check_step(closure, scaled=hasattr(self, "found_inf"))
        if unscale(self) and not self._nobody_had_samples():
            self._inner.step()
            self._counters.steps += 1
        else:  # on all ranks
            self._counters.passive_steps += 1
        self._algorithm.after_step()
        self._policy.end_step(self._inner, None)
        self._marks.use(self._parameters.parameters)
        self._algorithm.see_version()
