// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

const loopback = "127.0.0.1"

// Free returns an address of this machine that nobody listens on, and that is kept until this process ends: a process
// that names it can listen on it, and dials of it are refused until then.
func Free() (string, error) {
	r, err := Reserve(loopback)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(loopback, strconv.Itoa(r.Port)), nil
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
