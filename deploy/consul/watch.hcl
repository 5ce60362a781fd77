# Tells every manager which of its peers look gone. Managers that keep their View in Consul follow
# its health checks by themselves as well; this way needs no query of theirs, and it is the place
# for commands of your own.
#
# The handler gets the whole state of the service on stdin, not what changed, and may run twice or
# late. What it tells is a suspicion, never a verdict: a manager that its peers still hear stays,
# and a compare-and-set of the View decides who is out.
#
# One agent with this file is enough; on all of them it does no harm. The service is PREFIX-manager
# with the prefix of --config-store consul://HOST:PORT/PREFIX. ringctl must be on the agent's PATH.

watches = [
  {
    type         = "service"
    service      = "rota-manager"
    handler_type = "script"
    args         = ["ringctl", "signal", "--from-consul", "-o", "json"]
  },
]
