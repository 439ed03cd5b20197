// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ports

import (
	"fmt"
	"net"
)

// Reservation is a TCP port that was free when it was picked.
type Reservation struct {
	Port int
}

// Reserve picks a free port of an IPv4 address of this machine. Outside Linux it cannot be kept, so another process may
// take it before its server does. The server then fails to start, and its log says so.
func Reserve(host string) (*Reservation, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	return &Reservation{Port: l.Addr().(*net.TCPAddr).Port}, l.Close()
}

// Release ends the reservation.
func (r *Reservation) Release() error {
	return nil
}
