// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// port is a TCP port that no other process is given.
type port struct {
	number int
	fd     int
}

// reservePort picks a free port of an IPv4 address of this machine and keeps it by binding a socket that never
// listens. The kernel gives the port to nobody else who asks for any port,
// while a server that names it (with SO_REUSEADDR, as Go's do) can listen on
// it, stop and listen again. The reservation ends with this process.
func reservePort(host string) (*port, error) {
	address, err := netip.ParseAddr(host)
	if err != nil || !address.Is4() {
		return nil, fmt.Errorf("reserve port: %q is not an IPv4 address", host)
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	p := &port{fd: fd}
	if p.number, err = bindAny(fd, address.As4()); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve port: %w", err), p.release())
	}
	return p, nil
}

// bindAny binds the socket to a port of the kernel's choice and returns that.
func bindAny(fd int, address [4]byte) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: address}); err != nil {
		return 0, err
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return addr.(*syscall.SockaddrInet4).Port, nil
}

func (p *port) release() error {
	return syscall.Close(p.fd)
}
