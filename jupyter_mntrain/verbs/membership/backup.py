"""``driver backup`` and ``driver restore``: the cluster's authority in a file, to keep or move."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from rich.text import Text

from jupyter_mntrain.cluster.default import default_cluster
from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.command_line.passphrase_input import add_passphrase_arguments, read_passphrase
from jupyter_mntrain.model.errors import no_cluster
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class BackUpAuthority(Verb):
    name = "backup"
    help = "write the cluster's authority into an encrypted file, to keep or move"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "file", type=Path, metavar="FILE", completes="file", help="the file to create"
        )
        add_passphrase_arguments(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        from jupyter_mntrain.trust.backup import AuthorityBackup
        from jupyter_mntrain.trust.driver_membership import DriverMembership, known_clusters

        cluster = args.cluster or default_cluster(context.environment)[0]
        membership = DriverMembership.find(cluster)
        if membership is None:
            raise no_cluster(cluster, known_clusters())
        membership.authorized()  # before it asks for a passphrase
        path = context.directory / in_home(args.file)
        backup = AuthorityBackup(path)
        backup.refuse_existing()
        backup.write(membership, cluster, read_passphrase(args, context.program, twice=True))
        text = Text.assemble(("✓ ", "green"), (str(path), "bold"))
        text.append(
            f" holds the authority of cluster {cluster}, encrypted. Keep it off this machine, and "
            "the passphrase elsewhere. Make a new one after each invitation: who joins later is "
            f"not in it.\nTo move the authority, on the other machine: {context.program} driver "
            "restore FILE"
        )
        return Outcome(text, {"file": str(path), "cluster": cluster})


class RestoreAuthority(Verb):
    name = "restore"
    help = "take over a cluster's authority from a file of driver backup"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument("file", type=Path, metavar="FILE", completes="file", help="the backup")
        add_passphrase_arguments(parser)
        parser.flag(
            "--replace", help="move the cluster of that name on this machine aside, if there is one"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        from jupyter_mntrain.trust.backup import AuthorityBackup

        backup = AuthorityBackup(context.directory / in_home(args.file))
        backup.refuse_restore(args.cluster, replaces=args.replace)
        passphrase = read_passphrase(args, context.program, twice=False)
        done = backup.restore(passphrase, cluster=args.cluster, replaces=args.replace)
        age = formats.duration(max(0.0, context.clock() - done.made_s))
        text = Text.assemble(
            ("✓ ", "green"),
            "this machine holds the authority of cluster ",
            (done.cluster, "bold"),
            f": it can invite, revoke and launch. It knows {formats.plural(done.members, 'member')}"
            f", as of {age} ago; who joined since then stays trusted, but is not listed here.",
        )
        if done.moved_to is not None:
            text.append(f"\nWhat was here before is in {done.moved_to}")
        text.append(
            "\nOnly one machine should hold the authority: two that revoke at the same time "
            "overrule each other. If the old machine still works, delete its copy there: "
            f"rm -r ~/.config/mntrain/clusters/{done.cluster}\nIf it was stolen, rotate the "
            "authority: see docs/security.md. Restart notebooks that use the cluster.",
            "yellow",
        )
        data = {
            "cluster": done.cluster,
            "member_count": done.members,
            "made_s": done.made_s,
            "moved_to": done.moved_to,
        }
        return Outcome(text, data)
