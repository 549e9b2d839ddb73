import ipaddress

import pytest

from backend.network.outbound import ForbiddenAddressError, OutboundPolicy

PUBLIC_ONLY = OutboundPolicy()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::10.0.0.1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
    ],
)
def test_addresses_that_lead_inside_are_refused(address: str) -> None:
    with pytest.raises(ForbiddenAddressError, match="HEADRACE_OUTBOUND_ALLOW"):
        PUBLIC_ONLY.check_address(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_public_addresses_are_allowed(address: str) -> None:
    PUBLIC_ONLY.check_address(address)


@pytest.mark.parametrize(
    "host", ["localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:10.0.0.1]"]
)
def test_hosts_are_refused_however_they_are_written(host: str) -> None:
    with pytest.raises(ForbiddenAddressError):
        PUBLIC_ONLY.check_host(host)


def test_a_host_that_cannot_be_resolved_is_left_to_the_connection() -> None:
    PUBLIC_ONLY.check_host("erp.example.invalid")


def test_an_operator_can_allow_networks() -> None:
    policy = OutboundPolicy([ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("::1/128")])
    policy.check_address("10.1.2.3")
    policy.check_address("::1")
    with pytest.raises(ForbiddenAddressError):
        policy.check_address("10.2.0.1")
    with pytest.raises(ForbiddenAddressError):
        policy.check_address("127.0.0.1")


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.169.254.",
        "169.254.170.2",
        "169.254.43518",
        "2852039166",
        "0xa9fea9fe",
        "[::ffff:169.254.169.254]",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "Metadata.Google.Internal.",
        "instance-data",
    ],
)
def test_behind_a_tunnel_link_local_addresses_and_metadata_services_are_refused(host: str) -> None:
    with pytest.raises(ForbiddenAddressError, match="HEADRACE_OUTBOUND_ALLOW"):
        PUBLIC_ONLY.check_far_host(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.1.2.3", "fd12::1", "db.internal", "8.8.8.8", "::1"])
def test_behind_a_tunnel_private_addresses_and_names_are_what_it_is_for(host: str) -> None:
    PUBLIC_ONLY.check_far_host(host)


def test_an_operator_can_allow_link_local_addresses_behind_a_tunnel() -> None:
    policy = OutboundPolicy([ipaddress.ip_network("169.254.0.0/16")])
    policy.check_far_host("169.254.7.7")
    policy.check_far_host("metadata.google.internal")
    with pytest.raises(ForbiddenAddressError):
        policy.check_far_host("fe80::1")
