// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ports

import (
	"fmt"
	"net"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

func TestReservedPortIsForItsServerOnly(t *testing.T) {
	p, err := Reserve(loopback)
	check.Must(t, err)
	address := fmt.Sprintf("%s:%d", loopback, p.Port)
	// A server stops and starts; in between nobody is given its port.
	for range 2 {
		l, err := net.Listen("tcp4", address)
		check.Must(t, err)
		check.Must(t, l.Close())
		for range 500 {
			other, err := Reserve(loopback)
			check.Must(t, err)
			if other.Port == p.Port {
				t.Fatalf("port %d is reserved twice", p.Port)
			}
			check.Must(t, other.Release())
		}
	}
	check.Must(t, p.Release())
}
