"""Re-attach: give a node new generations of every tenant that it holds."""

from __future__ import annotations

from sexton.issuer import wire
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Desk
from sexton.issuer.operations.issuing import Call, Issuing, issue
from sexton.issuer.wire import Name
from sexton.schemas.events import GenerationForm, IssueOperation

__all__ = ["ReAttach"]


class ReAttach(Issuing, forbid_unknown_fields=True):
    """Give a node new generations of every tenant that it holds."""

    node: Name
    node_generation: int | None = None

    path = "/v1/re-attach"

    def carry_out(self, desk: Desk, deadline: Deadline, form: GenerationForm | None = None) -> wire.Granted:
        """Give a node new generations of all that it holds; of nothing, if it holds nothing.

        `form` is the only one that the caller can take. Raises RequestRefused: `request-id-conflict`;
        `overtaken` by a later one of the node that is whole; `other-form` when it holds a tenant of another
        form; and `stale-node` for a node generation that is not the newest: the node must stop.
        """
        operation, generation = IssueOperation.RE_ATTACH, self.node_generation
        call = Call(*self.identity(), operation, self.node, None, form=form, node_generation=generation)
        return issue(desk, call, deadline)
