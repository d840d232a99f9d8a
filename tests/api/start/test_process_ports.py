"""Every API process can be reached alone, for Prometheus."""

import socket
from pathlib import Path

import httpx
import pytest

from api.start.listening import PortTaken
from configurators.store.server.server import free_ports
from tests.service import eventually, is_ready, processes_with, running


def test_each_api_process_has_a_port_of_its_own(tmp_path: Path) -> None:
    ports = free_ports(2)
    http = {"process_ports": ports}
    with running(tmp_path, dispatchers=2, configurators=1, http=http) as service:
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        eventually(lambda: all(map(is_ready, urls)), "both processes are ready")
        for _ in range(3):
            assert httpx.get(f"{urls[0]}/hosts", timeout=60).status_code == 200
        counted = [httpx.get(f"{url}/metrics", timeout=60).text for url in urls]
        series = 'dzflow_http_requests_total{route="GET /hosts",status="200"}'
        assert f"{series} 3.0" in counted[0]
        assert series not in counted[1]
        eventually(lambda: is_ready(service.url), "the shared port is served, too")


def test_a_port_of_a_process_that_is_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(PortTaken, match=f"port {port} .* choose another http.process_ports"),
            running(tmp_path, http={"process_ports": [port]}),
        ):
            pass
    assert processes_with(str(tmp_path)) == {}
