"""`dzflow lab`: a network of real switches and hosts on this machine."""

import signal
from contextlib import ExitStack
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    help="A network of real Open vSwitch bridges, with hosts in network namespaces.",
    no_args_is_help=True,
)


@app.command()
def up(
    topology: Annotated[
        str, typer.Option(help="Such as line:3 or fat-tree:10, or a file.")
    ] = "line:3",
    controller: Annotated[
        str, typer.Option(help="The controller of the switches, such as tcp:127.0.0.1:6653.")
    ] = "",
) -> None:
    """Build a lab and run it until Ctrl-C, which removes everything."""
    from sdn.lab import Lab
    from sdn.network.topologies import topology as make

    console = Console()
    network = make(topology)
    stop = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)  # until sigwait below
    with ExitStack() as cleanup:
        with console.status(f"building {topology}"):
            lab = cleanup.enter_context(Lab(network, controller or ()))
        hosts = ", ".join(host.id for host in network.hosts[:8]) + ", …" * (len(network.hosts) > 8)
        console.print(f"lab {lab.tag}: {len(network.switches)} switches, hosts {hosts}")
        console.print(f"try: dzflow lab exec {network.hosts[0].id} -- ip address")
        console.print("Ctrl-C removes everything")
        signal.sigwait(stop)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def exec(
    host: Annotated[str, typer.Argument(help="A host of the running lab, such as h1.")],
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.")],
    lab: Annotated[str | None, typer.Option(help="Which lab, if several are running.")] = None,
) -> None:
    """Run a command on a host of the running lab, and exit with its exit code."""
    from sdn.lab.command import run_in_host

    if command and command[0] == "--":
        command = command[1:]
    raise typer.Exit(run_in_host(host, command, lab))
