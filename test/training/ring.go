// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ring is the connections of one rank to the rank after it and the rank before it. One goroutine uses it.
type ring struct {
	rank, world int
	next, prev  net.Conn
	timeout     time.Duration
}

// hello is what a rank says to the next one when it connects.
type hello struct {
	Magic    [8]byte
	Rank     uint32
	Settings [sha256.Size]byte
}

var magic = [8]byte{'r', 'i', 'n', 'g', '-', 'v', '1', '\n'}

func newHello(rank int, s settings) hello {
	return hello{Magic: magic, Rank: uint32(rank), Settings: sha256.Sum256(fmt.Appendf(nil, "%+v", s))}
}

// connect waits until the ring is closed. The ring breaks when ctx ends.
func connect(ctx context.Context, o options) (*ring, error) {
	r := &ring{rank: o.place.rank, world: len(o.place.peers), timeout: o.peerTimeout}
	if r.world == 1 {
		return r, nil
	}
	waiting, stop := context.WithTimeoutCause(ctx, o.rendezvous, errors.New("--rendezvous-timeout is over"))
	defer stop()
	listener, err := new(net.ListenConfig).Listen(waiting, "tcp", o.place.listen)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(waiting, func() { _ = listener.Close() })

	accepted := make(chan error, 1)
	go func() {
		var err error
		r.prev, err = accept(listener, newHello(r.before(), o.settings), o.peerTimeout)
		if err != nil {
			stop() // Ends dial.
		}
		accepted <- err
	}()
	r.next, err = dial(waiting, o.place.peers[r.after()], newHello(r.rank, o.settings))
	if err != nil {
		_ = listener.Close() // Ends accept.
	}
	if wrong := <-accepted; wrong != nil && !errors.Is(wrong, net.ErrClosed) {
		err = wrong
	} else if err == nil && wrong != nil {
		err = fmt.Errorf("rank %d did not connect: %w", r.before(), context.Cause(waiting))
	}
	if err != nil {
		r.close()
		return nil, err
	}
	context.AfterFunc(ctx, r.close)
	return r, nil
}

func (r *ring) before() int { return (r.rank + r.world - 1) % r.world }

func (r *ring) after() int { return (r.rank + 1) % r.world }

// dial tries until the next rank answers: its pod may not be there yet, and its name neither.
func dial(ctx context.Context, address string, own hello) (net.Conn, error) {
	retry := time.NewTicker(200 * time.Millisecond)
	defer retry.Stop()
	for {
		attempt, stop := context.WithTimeout(ctx, 5*time.Second) // A name may still lead to a pod that is gone.
		connection, err := new(net.Dialer).DialContext(attempt, "tcp", address)
		stop()
		if err == nil {
			if err = binary.Write(connection, binary.BigEndian, own); err == nil {
				return connection, nil
			}
			_ = connection.Close()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: %w: %w", address, context.Cause(ctx), err)
		case <-retry.C:
		}
	}
}

// accept waits for the rank before, and leaves connections of others alone.
func accept(listener net.Listener, want hello, timeout time.Duration) (net.Conn, error) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return nil, err
		}
		var said hello
		err = connection.SetReadDeadline(time.Now().Add(timeout))
		if err == nil {
			err = binary.Read(connection, binary.BigEndian, &said)
		}
		switch {
		case err != nil || said.Magic != want.Magic || said.Rank != want.Rank:
			_ = connection.Close()
		case said != want:
			_ = connection.Close()
			return nil, fmt.Errorf("rank %d has other settings: want the same flags and PET_ variables on all nodes", said.Rank)
		default:
			return connection, nil
		}
	}
}

func (r *ring) close() {
	for _, connection := range []net.Conn{r.next, r.prev} {
		if connection != nil {
			_ = connection.Close()
		}
	}
}

// exchange sends to the next rank and receives from the rank before at the same time.
func (r *ring) exchange(out, in []byte) error {
	sent := make(chan error, 1)
	go func() { sent <- r.send(out) }()
	if err := r.receive(in); err != nil {
		r.close() // Ends send. Its error then has no more information.
		return cmp.Or(err, <-sent)
	}
	return <-sent
}

func (r *ring) send(out []byte) error {
	err := r.next.SetWriteDeadline(time.Now().Add(r.timeout))
	if err == nil {
		_, err = r.next.Write(out)
	}
	if err != nil {
		return fmt.Errorf("lost rank %d: %w", r.after(), err)
	}
	return nil
}

func (r *ring) receive(in []byte) error {
	err := r.prev.SetReadDeadline(time.Now().Add(r.timeout))
	if err == nil {
		_, err = io.ReadFull(r.prev, in)
	}
	if err != nil {
		return fmt.Errorf("lost rank %d: %w", r.before(), err)
	}
	return nil
}

// allReduce replaces the values of each rank by their sum over all ranks. Each element is added up on one rank, so that
// all ranks get the same bits.
func (r *ring) allReduce(values []float64) error {
	chunk := func(i int) []float64 {
		i = (i%r.world + r.world) % r.world
		return values[i*len(values)/r.world : (i+1)*len(values)/r.world]
	}
	for i := range r.world - 1 { // Now chunk rank+1 is the sum.
		in := chunk(r.rank - i - 1)
		buffer := make([]byte, 8*len(in))
		if err := r.exchange(encode(chunk(r.rank-i)), buffer); err != nil {
			return err
		}
		received := make([]float64, len(in))
		decode(received, buffer)
		add(in, received)
	}
	for i := range r.world - 1 {
		in := chunk(r.rank - i)
		buffer := make([]byte, 8*len(in))
		if err := r.exchange(encode(chunk(r.rank+1-i)), buffer); err != nil {
			return err
		}
		decode(in, buffer)
	}
	return nil
}

// allGather returns what each rank has. All have the same length.
func (r *ring) allGather(own []byte) ([][]byte, error) {
	all := make([][]byte, r.world)
	all[r.rank] = own
	for i := range r.world - 1 {
		in := make([]byte, len(own))
		if err := r.exchange(all[(r.rank-i+r.world)%r.world], in); err != nil {
			return nil, err
		}
		all[(r.rank-i-1+r.world)%r.world] = in
	}
	return all, nil
}

// broadcast replaces the values of all ranks by the values of one rank.
func (r *ring) broadcast(from int, values []float64) error {
	buffer := encode(values)
	if r.rank != from {
		if err := r.receive(buffer); err != nil {
			return err
		}
		decode(values, buffer)
	}
	if r.after() == from {
		return nil
	}
	return r.send(buffer)
}

// agree checks that all ranks have the same bytes.
func (r *ring) agree(what string, own []byte) error {
	all, err := r.allGather(own)
	if err != nil {
		return err
	}
	for rank, other := range all {
		if !bytes.Equal(own, other) {
			return fmt.Errorf("%s of rank %d is %s, and that of rank %d is %s", what, r.rank, own, rank, other)
		}
	}
	return nil
}
