// Copyright: tether.fleet contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

// The clients and the fixed-answer engine of the benchmark ttft. Standard library only.
//
//	load engine UNIX_SOCKET TCP_ADDRESS DELAY     an engine whose answer is fixed
//	load turns  PLAN                              requests one by one, the targets take turns
//	load push   PLAN                              one target, so many clients, so long
//
// A plan is JSON; the answer on standard output is JSON too.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Target is one way to the engine.
type Target struct {
	Name    string `json:"name"`
	Network string `json:"network"` // tcp or unix
	Address string `json:"address"`
}

// Plan is what one call does.
type Plan struct {
	Targets []Target `json:"targets"`
	Path    string   `json:"path"`
	Body    string   `json:"body"`
	Rounds  int      `json:"rounds"`  // of turns
	Clients int      `json:"clients"` // of push
	Seconds float64  `json:"seconds"` // of push
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) == 4 && words[0] == "engine" {
		delay, err := time.ParseDuration(words[3])
		if err != nil {
			return err
		}
		return serve(words[1], words[2], delay)
	}
	if len(words) != 2 {
		return fmt.Errorf("expected engine, turns or push with their arguments, found %q", words)
	}
	var plan Plan
	if err := json.Unmarshal([]byte(words[1]), &plan); err != nil {
		return err
	}
	switch words[0] {
	case "turns":
		return json.NewEncoder(os.Stdout).Encode(turns(plan))
	case "push":
		return json.NewEncoder(os.Stdout).Encode(push(plan))
	}
	return fmt.Errorf("expected engine, turns or push, found %q", words[0])
}
