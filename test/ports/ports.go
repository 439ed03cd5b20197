// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// Free is an address that nobody listens on now.
func Free(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// Ready returns nil if the process that answers probes at the address is ready.
func Ready(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("readiness: %s", response.Status)
	}
	return nil
}
