"""Serving address: what a job that serves says, as somebody else can use it."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.text.serving_address import NO_TEMPLATE, address_in, served_at


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/v1"),
        ("0.0.0.0", "http://10.0.0.7:8000/v1"),
        ("::1", "http://[::1]:8000/v1"),
        ("::", "http://10.0.0.7:8000/v1"),
        ("0::0", "http://10.0.0.7:8000/v1"),
        ("wopr.lan", "http://wopr.lan:8000/v1"),
    ],
)
def test_a_job_that_serves_tells_where_it_can_be_called(address, url):
    assert address_in(served_at(address, 8000), "10.0.0.7") == url


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_of_a_node_with_an_ipv6_address_the_url_has_brackets(address):
    assert address_in(served_at(address, 8000), "fd00::7") == "http://[fd00::7]:8000/v1"


def test_a_job_that_loads_does_not_serve_yet():
    assert address_in("loading the model", "10.0.0.7") is None


def test_a_model_without_a_chat_template_has_the_same_address():
    told = served_at("127.0.0.1", 8000, has_template=False)
    assert NO_TEMPLATE in told
    assert address_in(told, "10.0.0.7") == "http://127.0.0.1:8000/v1"
