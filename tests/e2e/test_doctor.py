"""`mortal doctor` asks a real server with deployments."""

from mortal.maintenance.server import look_at_server


def test_it_tells_what_a_server_with_deployments_has_and_lacks(prefect, server):
    findings = list(look_at_server(server.api_url))
    found = {each.what: each for each in findings}
    assert [what for what, each in found.items() if each.level == "problem"] == []
    assert found["server"].level == found["vacuum"].level == found["recovery"].level == "ok"
    assert "flow runs that ended 90 days ago" in found["vacuum"].word
    assert "grpo-train/local" in found["deployments"].word
    assert "`mortal automate` makes those" in found["automations"].word
    workers = [each.word for each in findings if each.what == "worker"]
    assert any("online for the pool local" in word for word in workers)
    assert any("online for the pool modal" in word for word in workers)
