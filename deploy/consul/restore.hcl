# Runs a command once for each manager that is lost: the example beside this file starts it anew on this
# computer. A file of its own, beside watch.hcl: Consul does not run a handler again while it runs, and
# the signals must not wait for that.
#
# What Consul shows is a suspicion. The command runs only when some manager's View says that the very
# run is DOWN, and still does after --restore-after: who comes back by itself is not lost. It runs once for
# each loss (cluster, number, run), on whichever computers this handler runs: they agree by a key below
# PREFIX/restores in Consul. Where it failed, or its handler ended before it did, the next run of this
# handler runs it again: at the next change that Consul sees, or by hand, with the same environment:
#
#   curl -s http://127.0.0.1:8500/v1/health/service/rota-manager |
#       ringctl signal --from-consul --restore-command /etc/consul.d/restore
#
# In the command's environment are ROTA_CLUSTER, ROTA_NUMBER, ROTA_ID, ROTA_INCARNATION and ROTA_GRPC of the
# lost manager, ROTA_CONTACT (a manager that knows of the loss), ROTA_ENDPOINT (all that pass their
# checks) and ROTA_ATTEMPT; the rest is the agent's own environment. ROTA_CONSUL there says where the View
# is, if it is not consul://127.0.0.1:8500/rota.

watches = [
  {
    type         = "service"
    service      = "rota-manager"
    handler_type = "script"
    args = [
      "ringctl", "signal", "--from-consul", "-o", "json",
      "--restore-command", "rota-restore",
      "--restore-after", "10s", "--restore-timeout", "10m",
    ]
  },
]
