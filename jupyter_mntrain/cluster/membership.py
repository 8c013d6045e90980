"""Membership of a cluster: its invitations, members and revocations."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.trust.certificates import Role
from jupyter_mntrain.trust.driver_membership import DriverMembership
from jupyter_mntrain.trust.joining.token import write_token
from jupyter_mntrain.trust.member_register import RegisteredMember
from jupyter_mntrain.trust.registrar import INVITE_LIFE_S


class ClusterMembership:
    """The members of one cluster, as this driver knows them. Any thread may call.

    Args:
        session: the driver's.
    """

    def __init__(self, session: DriverSession) -> None:
        self._session = session

    @property
    def identity(self) -> DriverMembership | None:
        """This driver's membership; ``None`` before it has joined.

        Raises:
            TrustError: its keys are damaged, or others may read them.
        """
        desk = self._session.live.desk
        if desk.problem is not None:
            raise desk.problem
        return desk.identity

    @property
    def is_driver(self) -> bool:
        """Whether this user has keys of the cluster; the first invitation makes it."""
        return self._session.live.desk.identity is not None

    def invite(
        self, role: Role = "node", *, uses: int = 1, expires_in_s: float = INVITE_LIFE_S
    ) -> str:
        """A token that lets a node, or another driver, join. The first one makes the cluster.

        Whoever waits with it is admitted by this process, or any other of this user, while it
        runs.

        Args:
            uses: how many may join with it.

        Raises:
            SpecError: no uses, or no time.
            TrustError: another driver made the cluster; or keys can be read by others.
        """
        identity = self.identity or DriverMembership.make(self._session.live.cluster)
        self._session.loop.run(self._look())
        return write_token(identity.authorized().invite(role, uses=uses, expires_in_s=expires_in_s))

    def members(self) -> Sequence[RegisteredMember]:
        """Everybody who ever joined, as known to the driver that made the cluster."""
        registrar = self.identity.registrar if self.identity else None
        return registrar.members() if registrar else ()

    def revoke(self, name: str) -> RegisteredMember:
        """Revoke a driver's or a node's certificate; reachable nodes know it when this returns.

        Nodes that are silent now are told by the first driver that sees them.

        Raises:
            SpecError: nobody is called so, or it is this driver.
            TrustError: another driver made the cluster.
        """
        if self.identity is None:
            name = self._session.live.cluster
            raise SpecError(f"no cluster named {name!r} exists on this machine")
        gone = self.identity.authorized().revoke(name)
        self._session.loop.run(self._session.live.desk.settle(self._session.live.nodes))
        return gone

    async def _look(self) -> None:
        self._session.live.desk.look()
