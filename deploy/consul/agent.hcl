# A Consul agent on a machine that runs managers or node-agents of Rota. Give this folder to
# `consul agent -config-dir`, beside a file of your own with node_name, bind_addr, retry_join and,
# on three or five machines, server = true and bootstrap_expect.
#
# Rota needs of Consul: the key-value store, services with gRPC checks, blocking queries. Any
# version from 1.8 on will do.

data_dir = "/var/lib/consul"

# Rota talks to the agent of its own machine only, over plain HTTP.
client_addr = "127.0.0.1"

# Nobody may run commands through Consul. The handler of the watch beside this file is a local
# setting and is not meant by it.
disable_remote_exec = true
enable_script_checks = false

performance {
  # Servers notice a dead leader within about a second, not five.
  raft_multiplier = 1
}

# Where Consul controls access, managers and node-agents take their token from the file that
# CONSUL_HTTP_TOKEN_FILE names, which nobody else may be able to read, or from CONSUL_HTTP_TOKEN. That of a
# manager needs: key_prefix "PREFIX/" write, service_prefix "PREFIX-" write. That of a node-agent needs the
# second alone: a node has no business in the View.

limits {
  # Each manager holds two queries open and makes calls besides. The default of 200 connections
  # is enough for some 50 managers on one machine.
  http_max_conns_per_client = 1024

  # The View and the node registry are one value: 100 managers and 1,000 nodes take about 350 KB.
  # This is Consul's default; Rota refuses to write more.
  kv_max_value_size = 524288
}
