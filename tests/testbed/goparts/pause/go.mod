module tether.fleet/testbed/pause

go 1.24.0
