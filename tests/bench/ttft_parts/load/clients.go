// Copyright: tether.fleet contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"
)

// Each client keeps its connection as long as the server does, as common client libraries do.
func client(target Target) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Client{
		Timeout: 60 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, target.Network, target.Address)
			},
			DisableCompression:  true,
			MaxIdleConns:        0,
			MaxIdleConnsPerHost: 1024,
		},
	}
}

// ask sends one request; the milliseconds to the first byte of the answer's body and to its end.
func ask(one *http.Client, plan Plan) (first, whole float64, err error) {
	began := time.Now()
	answer, err := one.Post("http://engine"+plan.Path, "application/json", strings.NewReader(plan.Body))
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	var byte1 [1]byte
	if _, err = io.ReadFull(answer.Body, byte1[:]); err != nil {
		return 0, 0, err
	}
	first = milliseconds(began)
	rest, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, 0, err
	}
	if answer.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("status %d: %.200s%.200s", answer.StatusCode, byte1[:], rest)
	}
	if !strings.HasSuffix(strings.TrimSpace(string(rest)), "[DONE]") {
		return 0, 0, fmt.Errorf("a stream that ends with %.80q", rest)
	}
	return first, milliseconds(began), nil
}

// Series is what one target did, in milliseconds.
type Series struct {
	First  []float64 `json:"first"`
	Errors []string  `json:"errors"`
}

// turns asks every target once a round, in an order of each round's own.
func turns(plan Plan) map[string]*Series {
	found := map[string]*Series{}
	clients := make([]*http.Client, len(plan.Targets))
	for place, target := range plan.Targets {
		clients[place] = client(target)
		found[target.Name] = &Series{First: []float64{}, Errors: []string{}}
		for range 5 { // connections, and what a first request sets up
			_, _, _ = ask(clients[place], plan)
		}
	}
	// Another order in each round: two ways share the ingress, and whoever always came after the
	// other one would find it warm. The seed is fixed, so that runs can be compared.
	order := rand.New(rand.NewPCG(1, 2))
	for range plan.Rounds {
		for _, place := range order.Perm(len(plan.Targets)) {
			series := found[plan.Targets[place].Name]
			if first, _, err := ask(clients[place], plan); err != nil {
				series.Errors = append(series.Errors, err.Error())
			} else {
				series.First = append(series.First, first)
			}
		}
	}
	return found
}

// Pushed is what one target did under the load of all clients.
type Pushed struct {
	Requests int      `json:"requests"`
	Seconds  float64  `json:"seconds"`
	Failed   int      `json:"failed"`
	Errors   []string `json:"errors"` // the first few
	P50      float64  `json:"p50"`
	P99      float64  `json:"p99"`
}

// push lets each client send its next request when the last one is answered.
func push(plan Plan) Pushed {
	one := client(plan.Targets[0])
	var lock sync.Mutex
	var all []float64
	found := Pushed{Errors: []string{}}
	var clients sync.WaitGroup
	began := time.Now()
	until := began.Add(time.Duration(plan.Seconds * float64(time.Second)))
	for range plan.Clients {
		clients.Go(func() {
			var mine []float64
			for time.Now().Before(until) {
				_, whole, err := ask(one, plan)
				if err == nil {
					mine = append(mine, whole)
					continue
				}
				lock.Lock()
				found.Failed++
				if len(found.Errors) < 5 {
					found.Errors = append(found.Errors, err.Error())
				}
				lock.Unlock()
				time.Sleep(10 * time.Millisecond) // a refusal must not count as speed
			}
			lock.Lock()
			all = append(all, mine...)
			lock.Unlock()
		})
	}
	clients.Wait()
	found.Requests, found.Seconds = len(all), time.Since(began).Seconds()
	sort.Float64s(all)
	if len(all) > 0 {
		found.P50, found.P99 = all[len(all)/2], all[len(all)*99/100]
	}
	return found
}

func milliseconds(since time.Time) float64 {
	return float64(time.Since(since).Microseconds()) / 1000
}
