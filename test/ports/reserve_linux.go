// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// Reservation is a TCP port that no other process is given.
type Reservation struct {
	Port int
	fd   int
}

// Reserve picks a free port of an IPv4 address of this machine and keeps it by binding a socket that never listens. The
// kernel gives the port to nobody else who asks for any port, and to no connection. A server that names the port (with
// SO_REUSEADDR, as Go's do) can listen on it, stop and listen again. The reservation ends with this process.
func Reserve(host string) (*Reservation, error) {
	address, err := netip.ParseAddr(host)
	if err != nil || !address.Is4() {
		return nil, fmt.Errorf("reserve port: %q is not an IPv4 address", host)
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	r := &Reservation{fd: fd}
	if r.Port, err = bindAny(fd, address.As4()); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve port: %w", err), r.Release())
	}
	return r, nil
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

// Release ends the reservation.
func (r *Reservation) Release() error {
	return syscall.Close(r.fd)
}
