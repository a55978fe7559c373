module tether.fleet/bench/load

go 1.26
