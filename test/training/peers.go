// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"time"
)

// peer is a connection to another rank.
type peer struct {
	net.Conn
	rank    int
	timeout time.Duration
	out     *gob.Encoder
	in      *gob.Decoder
}

func newPeer(ctx context.Context, connection net.Conn, rank int, timeout time.Duration) *peer {
	context.AfterFunc(ctx, func() { _ = connection.Close() })
	return &peer{
		Conn: connection, rank: rank, timeout: timeout, out: gob.NewEncoder(connection), in: gob.NewDecoder(connection),
	}
}

func (p *peer) send(value any) error {
	return p.exchange(func() error { return p.out.Encode(value) })
}

func (p *peer) receive(into any) error {
	return p.exchange(func() error { return p.in.Decode(into) })
}

func (p *peer) exchange(do func() error) error {
	if err := errors.Join(p.SetDeadline(time.Now().Add(p.timeout)), do()); err != nil {
		return fmt.Errorf("lost rank %d: %w", p.rank, err)
	}
	return nil
}

// connect connects rank 0 to all ranks, in their order, and the others to rank 0. The connections end with ctx.
func connect(ctx context.Context, o options) ([]*peer, error) {
	waiting, stop := context.WithTimeout(ctx, o.rendezvous)
	defer stop()
	if o.rank == 0 {
		return accept(ctx, waiting, o)
	}
	for {
		attempt, end := context.WithTimeout(waiting, 5*time.Second) // The name may still lead to a pod that is gone.
		connection, err := new(net.Dialer).DialContext(attempt, "tcp", o.master)
		end()
		if err == nil {
			master := newPeer(ctx, connection, 0, o.peerTimeout)
			return []*peer{master}, master.send(o.rank)
		}
		select {
		case <-waiting.Done():
			return nil, fmt.Errorf("connect to rank 0: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// accept waits until each other rank has said which one it is. Then nobody listens any more: a rank that is started
// again does not connect to a rank 0 that is about to end.
func accept(ctx, waiting context.Context, o options) ([]*peer, error) {
	_, port, err := net.SplitHostPort(o.master)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", port))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(waiting, func() { _ = listener.Close() })
	peers := make([]*peer, o.world-1)
	for missing := len(peers); missing > 0; {
		connection, err := listener.Accept()
		if err != nil {
			return nil, fmt.Errorf("%d ranks did not connect: %w", missing, err)
		}
		p := newPeer(ctx, connection, 0, o.peerTimeout)
		if p.receive(&p.rank) != nil || p.rank < 1 || p.rank >= o.world || peers[p.rank-1] != nil {
			_ = p.Close() // Another program.
			continue
		}
		peers[p.rank-1] = p
		missing--
	}
	return peers, nil
}
