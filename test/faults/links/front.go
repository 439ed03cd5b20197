// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// backlog of a listening socket that takes connections.
	backlog = 1024
	// dropTime is how long a connection attempt may take until it counts as dropped.
	dropTime = 250 * time.Millisecond
	// fillers is how many connections fill the queue of a socket with backlog 0 at most. Linux takes one.
	fillers = 16
)

// front listens, and passes connections on to a target.
type front struct {
	address *net.TCPAddr
	target  func() string

	// faults is held over a change of the front, and mu never while somebody waits.
	faults sync.Mutex

	mu       sync.Mutex
	listener *net.TCPListener    // under mu; nil: connections are refused
	stopped  chan struct{}       // under mu; closed when the accept loop of listener has ended
	filling  []net.Conn          // under mu: they fill the queue of the listener
	open     chan struct{}       // under mu; closed while connections carry something
	pairs    map[*pair]struct{}  // under mu
	ignored  map[string]struct{} // under mu: addresses of fillers
}

// pair is a connection and what it is passed on to.
type pair struct {
	client *net.TCPConn
	gone   chan struct{} // closed when the pair has been cut

	mu     sync.Mutex
	server *net.TCPConn // under mu; nil: it is being dialled
	ended  bool         // under mu
}

func newFront(target func() string) (*front, error) {
	f := &front{target: target, open: make(chan struct{}), pairs: map[*pair]struct{}{}, ignored: map[string]struct{}{}}
	close(f.open)
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	f.address = listener.Addr().(*net.TCPAddr)
	f.serve(listener)
	return f, nil
}

// serve begins to accept. The caller holds mu, or is the only one.
func (f *front) serve(listener *net.TCPListener) {
	stopped := make(chan struct{})
	f.listener, f.stopped = listener, stopped
	go func() {
		defer close(stopped)
		for {
			client, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			if p := f.take(listener, client); p != nil {
				go f.pass(p)
			}
		}
	}()
}

// take notes a connection, so that it can be cut. It returns nil for one that is not to be passed on.
func (f *front) take(listener *net.TCPListener, client *net.TCPConn) *pair {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := client.RemoteAddr().String()
	if _, ignored := f.ignored[from]; ignored || f.listener != listener {
		delete(f.ignored, from)
		_ = client.SetLinger(0)
		_ = client.Close()
		return nil
	}
	p := &pair{client: client, gone: make(chan struct{})}
	f.pairs[p] = struct{}{}
	return p
}

// pass passes a connection on until it ends.
func (f *front) pass(p *pair) {
	server, err := net.Dial("tcp4", f.target())
	if err == nil && p.connect(server.(*net.TCPConn)) {
		var directions sync.WaitGroup
		directions.Go(func() { f.carry(p, p.server, p.client) })
		directions.Go(func() { f.carry(p, p.client, p.server) })
		directions.Wait()
	}
	p.cut(false)
	f.mu.Lock()
	delete(f.pairs, p)
	f.mu.Unlock()
}

// connect completes a pair, unless it has been cut.
func (p *pair) connect(server *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		_ = server.Close()
		return false
	}
	p.server = server
	return true
}

// carry copies one direction of a pair. Data that was read while the front is shut stays on its way, and so does the
// end of a connection.
func (f *front) carry(p *pair, to, from *net.TCPConn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !f.wait(p) {
			return
		}
		if n > 0 {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				p.cut(errors.Is(writeErr, syscall.ECONNRESET))
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite()
			return
		default:
			p.cut(errors.Is(err, syscall.ECONNRESET))
			return
		}
	}
}

// wait returns when connections carry something, false if the pair has been cut before.
func (f *front) wait(p *pair) bool {
	for {
		f.mu.Lock()
		open := f.open
		f.mu.Unlock()
		select {
		case <-p.gone:
			return false
		case <-open:
		}
		f.mu.Lock()
		same := open == f.open
		f.mu.Unlock()
		if same {
			return true
		}
	}
}

// cut closes both connections, with a reset if asked for.
func (p *pair) cut(reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	close(p.gone)
	for _, c := range []*net.TCPConn{p.client, p.server} {
		if c == nil {
			continue
		}
		if reset {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
}

// cutAll ends all connections.
func (f *front) cutAll(reset bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut(reset)
}

// cut is cutAll for a caller that holds mu.
func (f *front) cut(reset bool) {
	for p := range f.pairs {
		p.cut(reset)
	}
}

// refuse closes the listening socket: attempts to connect get a reset. Connections that exist end with one.
func (f *front) refuse() {
	f.faults.Lock()
	defer f.faults.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener != nil {
		_ = f.listener.Close()
		f.listener = nil
	}
	f.cut(true)
	f.empty()
}

// empty takes the fillers out of the queue, and lets connections carry again. The caller holds mu.
func (f *front) empty() {
	if len(f.filling) == 0 {
		return
	}
	for _, filler := range f.filling {
		_ = filler.Close()
	}
	f.filling = nil
	close(f.open)
}

// shut makes the front lose everything: see the package's documentation.
func (f *front) shut() error {
	f.faults.Lock()
	defer f.faults.Unlock()
	f.mu.Lock()
	listener, stopped, down := f.listener, f.stopped, f.listener == nil || len(f.filling) > 0
	f.mu.Unlock()
	if down {
		return errors.New("the link is down already")
	}
	// The accept loop ends. The queue has what it would have accepted.
	if err := listener.SetDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	<-stopped
	if err := listen(listener, 0); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = make(chan struct{})
	return f.fill()
}

// fill fills the queue of the listening socket. The caller holds mu.
func (f *front) fill() error {
	for range fillers {
		filler, err := net.DialTimeout("tcp4", f.address.String(), dropTime)
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			return nil
		}
		if err != nil {
			return err
		}
		f.filling = append(f.filling, filler)
		f.ignored[filler.LocalAddr().String()] = struct{}{}
	}
	return fmt.Errorf("the queue of a socket with backlog 0 has taken %d connections", fillers)
}

// heal undoes refuse and shut.
func (f *front) heal() error {
	f.faults.Lock()
	defer f.faults.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener == nil {
		listener, err := net.ListenTCP("tcp4", f.address)
		if err != nil {
			return err
		}
		f.serve(listener)
	}
	if len(f.filling) == 0 {
		return nil
	}
	if err := errors.Join(listen(f.listener, backlog), f.listener.SetDeadline(time.Time{})); err != nil {
		return err
	}
	f.serve(f.listener)
	f.empty()
	return nil
}

// listen changes the backlog of a socket that listens already.
func listen(listener *net.TCPListener, backlog int) error {
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	err = raw.Control(func(fd uintptr) { listenErr = syscall.Listen(int(fd), backlog) })
	return errors.Join(err, listenErr)
}
