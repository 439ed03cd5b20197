// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"fmt"
	"io"
	"net"
)

// Until the yard stops, balance gives each connection to the first backend that takes it, as a Service does for
// replicas if some of them are down.
func (y *Yard) balance(ctx context.Context, address string, backends []string) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen in the place of a Service: %w", err)
	}
	go func() {
		<-y.stopped
		_ = listener.Close()
	}()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // The yard has stopped.
			}
			go pass(client, backends)
		}
	}()
	return nil
}

func pass(client net.Conn, backends []string) {
	defer client.Close()
	for _, backend := range backends {
		server, err := net.Dial("tcp", backend)
		if err != nil {
			continue
		}
		defer server.Close()
		ended := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				ended <- struct{}{}
			}()
		}
		<-ended
		return
	}
}
