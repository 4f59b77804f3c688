"""K-sync, K-batch-sync, K-async and K-batch-async SGD with parameter servers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch.optim import Optimizer

from wagma.collectives import PartialAllreduce
from wagma.collectives.communicator import import_mpi
from wagma.collectives.parameter_server.learner import Learner
from wagma.collectives.parameter_server.selection import METHODS, Method
from wagma.collectives.parameter_server.server import Server
from wagma.inject.checks import check_count
from wagma.launch.environment import meeting_place
from wagma.launch.logs import RankLogger
from wagma.training.arrays import HostCopy
from wagma.training.clock import Clock, Lead
from wagma.training.closures import needs_closure
from wagma.training.flat import FlatParameters
from wagma.training.flat_gradients import FlatGradients
from wagma.training.gradient_sum import GradientSum, bytes_of, cut, shards_of
from wagma.training.ranks import Waits
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.nonfinite import Nonfinite, NonfiniteGradients
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm, Meeting


class ParameterServerSGD(Algorithm):
    """Send the learners' gradients to servers, which step with the first `k` of a version.

    From Dutta et al., "Slow and Stale Gradients Can Win the Race" (AISTATS 2018), Sec. 2:

    - "k-sync": the first k gradients at the current version from different learners; the other
      learners cancel theirs.
    - "k-batch-sync": the first k gradients at the current version from any learners.
    - "k-async": k gradients from different learners at any version; a learner that has pushed waits
      for the update.
    - "k-batch-async": any k gradients; a learner gets the newest parameters at once, without
      waiting.

    The last `servers` ranks hold the parameters, each a contiguous part that does not split a
    tensor. They step the user's optimizer with the mean of the k gradients, sum(w g) / sum(w). All
    other ranks are learners, whose inner optimizers are not stepped. All ranks run the same loop.
    On a server one `step` serves until all learners have left their loops (by `synchronize`,
    `close` or another collective call). So a server computes at most one gradient, which is not
    used; `pending` is True there, so that loops can skip it. `outcome` is None on all ranks,
    because there are no averages. Register what has to happen once per version as a hook of the
    servers' inner step (``opt.register_step_post_hook(lambda *_: schedule.step())``).

    Models on GPUs are copied to and from host memory, where the servers sum the gradients.

    `version` is the version of a rank's parameters. Gradients that arrive after other learners
    left their loops may make versions beyond the last one of a loop.

    A rank without a gradient (overflow, weight 0, ``on_nonfinite="skip"``) counts as one of the k
    of a version, with weight 0. A step evaluates a closure once.

    Args:
        comm: the ranks that train together, over MPI; "auto": those that mpiexec started.
        method: one of the four methods.
        k: gradients per version, 1 to the number of learners.
        servers: number of ranks that hold the parameters.
        on_nonfinite: "error": a gradient that is not finite raises FloatingPointError on its rank,
            before it is sent; "skip": it is not sent.
        waits: timeout, stall_warning and transport, see `Algorithm`. The transport carries only the
            detection of deaths; gradients go over MPI.

    Raises:
        what `Algorithm` does. Creating the optimizer raises errors in the other arguments, on every
        rank. If a learner dies or fails the training goes on, as long as k learners are left (batch
        methods: one); otherwise all ranks get PeerError.
    """

    wait_avoiding = True
    joins = False
    _model: HostCopy  # the parameters
    _gradient: HostCopy  # of a learner
    _where_to_clip = (
        "averages gradients on servers: clip this rank's own after backward() and before step(), "
        "or the mean, on a server, in a hook: opt.register_step_pre_hook(...)"
    )

    def __init__(
        self,
        comm: Comm = "auto",
        method: Method = "k-sync",
        *,
        k: int = 1,
        servers: int = 1,
        on_nonfinite: Nonfinite = "error",
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, **waits)
        self.method = method
        self.k = k
        self.servers = servers
        self._nonfinite = NonfiniteGradients(on_nonfinite)
        self._gradients: FlatGradients | None = None
        self._began = self._ended = 0.0
        self._warned = False

    @property
    def carries_stops(self) -> bool:
        """Whether servers pass stop requests to all learners: always."""
        return True

    @property
    def is_server(self) -> bool:
        """Whether this rank holds parameters."""
        return self.rank >= self.size - self.servers

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        if self.comm is None or (self.comm == "auto" and meeting_place(os.environ) == "variables"):
            raise ValueError(
                "ParameterServerSGD needs MPI, and these ranks were started without it: "
                "start them with mpiexec and pass comm=MPI.COMM_WORLD, or train without a server, "
                "with KSync or KAsync"
            )
        if self.method not in METHODS:
            known = ", ".join(map(repr, METHODS))
            raise ValueError(f"method={self.method!r} must be one of {known}")
        self.k, self.servers = check_count("k", self.k, 1), check_count("servers", self.servers, 1)
        if self.size < self.servers + 1:
            raise ValueError(
                f"servers={self.servers} needs {self.servers + 1} ranks or more, for one learner "
                f"at least, and there are {self.size}: start more ranks"
            )
        if self.k > self.size - self.servers:
            raise ValueError(
                f"k={self.k} is more than the {plural(self.size - self.servers, 'learner')} that "
                f"{plural(self.size, 'rank')} with servers={self.servers} have: pass a smaller k"
            )
        self._nonfinite.check()
        own = {"method": self.method, "k": self.k, "servers": self.servers}
        return {**own, "on_nonfinite": self._nonfinite.what}

    def check_inner(self, inner: Optimizer) -> None:
        """Check that `inner` makes one step per gradient."""
        if needs_closure(inner):
            raise TypeError(
                f"ParameterServerSGD cannot train with {type(inner).__name__}, which evaluates its "
                "closure several times per step: use an optimizer such as torch.optim.SGD"
            )
        self._inner = inner

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create this rank's side of the connection, a learner or a server."""
        self._began = self._ended = time.monotonic()
        self._lead = Lead(Clock(parameters.layout.device))
        comm: Any = import_mpi().COMM_WORLD if self.comm == "auto" else self.comm
        ranks = PartialAllreduce(comm, torch.zeros(1), **self.waits)
        try:
            member, stops = self._join(comm, parameters, ranks), self.stops
            member.wants_stop = lambda: stops.wanted and not stops.agreed
            return (member,)
        except BaseException as error:
            ranks.__exit__(type(error), error, error.__traceback__)
            raise

    def _join(
        self, comm: Any, parameters: FlatParameters, ranks: PartialAllreduce
    ) -> Learner | Server:
        """Create the learner or the server that this rank is."""
        layout = parameters.layout
        shards = shards_of(layout, self.servers)
        self._model = HostCopy(parameters.flat)
        model = bytes_of(self._model.host)
        size = FlatGradients.size_for(layout)
        if not self.is_server:
            memory = torch.zeros(size, dtype=layout.dtype, device=layout.device)
            self._gradients = FlatGradients(parameters.parameters, layout, memory)
            self._gradient = HostCopy(memory)
            own = (comm, model, bytes_of(self._gradient.host), shards, ranks, self._patience)
            return Learner(*own, never_refused=self.method == "k-batch-async")
        part = cut(layout, self.servers)[self.rank - self.size + self.servers]
        holder = GradientSum(parameters, self._model, self._inner, part)
        return Server(
            *(comm, model, size * layout.dtype.itemsize, shards, ranks, self._patience),
            holder=holder,
            method=self.method,
            k=self.k,
        )

    @property
    def collective(self) -> Learner | Server:
        """This rank's learner or server; its own counter starts at 0 in every process."""
        member = super().collective
        assert isinstance(member, (Learner, Server))
        return member

    def step(self, inner: Optimizer, closure: Callable[[], Any] | None) -> Any:  # noqa: ARG002
        """Evaluate `closure` and push the gradient; serve and return None on a server."""
        loss = None
        if closure is not None and not self.is_server:
            with torch.enable_grad():
                loss = closure()
        self._push(self.weight)
        return loss

    def passive_step(self, inner: Optimizer) -> None:  # noqa: ARG002
        """Take part in a version without a gradient; serve on a server."""
        self._push(0.0)

    def _push(self, weight: float) -> None:
        member = self.collective
        if isinstance(member, Server):
            for parameter in self.parameters.parameters:
                parameter.grad = None  # computed by the loop, but unused
            self._settle()
            member.serve()
        else:
            before = member.counts.dropped
            empty = weight == 0 or not self._gathered()
            self._settle()
            if member.push(weight, empty=empty):
                self._model.put()
                self.parameters.written()
            if member.counts.dropped > before and not member.stopped:
                self._warn_of_dropping()
        self.stops.agreed |= member.stopped
        self._ended = time.monotonic()

    def _warn_of_dropping(self) -> None:
        """Warn once that no version can take this rank's gradient."""
        if not self._warned:
            self._warned = True
            RankLogger(__name__, self.rank, self.size).warning(
                "other learners have left their loops, and too few are left for k=%d: no update "
                "takes this rank's gradients; let all loops end at the same version",
                self.k,
            )

    def _gathered(self) -> bool:
        """Gather the gradient; return whether it is finite.

        Raises:
            FloatingPointError: it is not, and ``on_nonfinite="error"``.
        """
        assert self._gradients is not None
        self._gradients.gather(None)
        passes = self._nonfinite.passes(self._gradients, self)
        if passes:
            self._gradient.fetch()
        return passes

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Copy the servers' parameters to all ranks when all learners have left their loops."""
        self._settle()
        self.collective.synchronize()
        self._model.put()
        self.parameters.written()
        self._ended = time.monotonic()

    def meet(self) -> Meeting:
        """Meet the other ranks when all learners have left their loops."""
        if self._collectives:
            member = self.collective
            self._settle()
            if isinstance(member, Server):
                member.serve()
                member.resume()
            else:
                member.pause()
        return super().meet()

    def _settle(self) -> None:
        """Have the parameters on the host: a server's as they are, a learner's to be written."""
        if self.is_server:
            self._model.fetch()
        else:
            self._model.settle()

    def average(self, array: torch.Tensor, weight: float = 1.0) -> None:
        """Replace `array` on every rank by the mean over the learners; collective."""
        super().average(array, weight * (not self.is_server))

    def should_stop(self) -> bool:
        """Return whether this rank knows of a newer version; True on a server."""
        self._lead.keep()
        member = self.collective
        return isinstance(member, Server) or member.is_stale()

    @property
    def pending(self) -> bool:
        """Whether a gradient of this rank would be unused, as on a server."""
        return self.is_server

    def stats(self) -> dict[str, int | float]:
        """Return this rank's counters; those of the first server sum over all learners.

        "vectors_up" and "vectors_down": gradients and copies of the parameters that were sent;
        "cancelled", "dropped" and "nonfinite" (skipped) gradients; "staleness_mean" of the used
        gradients; "waited_seconds"; "busy_share", the share of the time from the creation of the
        optimizer to the end of the last step in which this rank did not wait.
        """
        member = self.collective
        counts, seconds = member.counts, self._ended - self._began
        return {
            "vectors_up": counts.up,
            "vectors_down": counts.down,
            "cancelled": counts.cancelled,
            "dropped": counts.dropped,
            "nonfinite": self._nonfinite.skipped,
            "staleness_mean": counts.staleness / (counts.used or 1),
            "waited_seconds": member.waited,
            "busy_share": 1 - member.waited / seconds if seconds > 0 else 1.0,
        }

    def release(self) -> None:
        """Release the memory for gradients."""
        self._gradients = None

    def __repr__(self) -> str:
        return (
            f"ParameterServerSGD({plural(self.size, 'rank')}, {self.method!r}, k={self.k}, "
            f"servers={self.servers})"
        )
