"""`mortal doctor` asks a real server with deployments."""

from mortal.maintenance.server import look_at_server


def test_it_tells_what_a_server_with_deployments_has_and_lacks(prefect, server):
    found = {each.what: each for each in look_at_server(server.api_url)}
    assert [what for what, each in found.items() if each.level == "problem"] == []
    assert found["server"].level == found["recovery"].level == "ok"
    assert "`mortal automate` makes those" in found["automations"].word
