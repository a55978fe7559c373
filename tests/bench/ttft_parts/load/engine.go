// Copyright: tether.fleet contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// The form of a chat completion: one token, then the end.
const event = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
const end = "data: [DONE]\n\n"

// serve answers every POST with the same stream after the delay, and every GET with 200. The same
// answer on both sockets: the one is the ingress's, the other that of a client that has no proxy.
func serve(path, address string, delay time.Duration) error {
	handler := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodGet {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		time.Sleep(delay)
		writer.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(writer, event)
		_ = http.NewResponseController(writer).Flush()
		_, _ = io.WriteString(writer, end)
	})
	server := &http.Server{Handler: handler}
	_ = os.Remove(path)
	local, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	direct, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(direct) }()
	return server.Serve(local)
}
