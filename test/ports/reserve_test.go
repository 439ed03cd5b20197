// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ports

import (
	"fmt"
	"net"
	"testing"
)

func TestReservedPortIsForItsServerOnly(t *testing.T) {
	p, err := Reserve(loopback)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("%s:%d", loopback, p.Port)
	// A server stops and starts; in between nobody is given its port.
	for range 2 {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for range 500 {
			other, err := Reserve(loopback)
			if err != nil {
				t.Fatal(err)
			}
			if other.Port == p.Port {
				t.Fatalf("port %d is reserved twice", p.Port)
			}
			if err := other.Release(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := p.Release(); err != nil {
		t.Error(err)
	}
}
