// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// place says which of the processes this one is.
type place struct {
	rank   int
	peers  []string // The address of each rank, with port.
	listen string   // Where this rank waits for the rank before it.
	shards int      // Into how many parts this node divides its samples, where torchrun would start processes.
}

// firstPod matches the address of the first pod of a replicated job in the JobSet's headless service.
var firstPod = regexp.MustCompile(`^([a-z0-9-]+)-0((?:\.[a-z0-9.-]+)?)$`)

// readPlace reads the environment that the torch policy sets. The error lists all faults.
func readPlace(getenv func(string) string) (place, error) {
	var faults []error
	number := func(name, example string, least, most int) int {
		value, err := strconv.Atoi(getenv(name))
		if err != nil || value < least || value > most {
			faults = append(faults,
				fmt.Errorf("%s=%q: want a number from %d to %d, for example %s", name, getenv(name), least, most, example))
			return least
		}
		return value
	}
	p := place{shards: 1}
	nodes := number("PET_NNODES", "2", 1, 1000)
	p.rank = number("PET_NODE_RANK", "0", 0, nodes-1)
	switch getenv("PET_NPROC_PER_NODE") {
	case "", "auto", "cpu", "gpu": // torchrun would count processors. The result must not depend on the machine.
	default:
		p.shards = number("PET_NPROC_PER_NODE", "1", 1, 1000)
	}
	if list := getenv("RING_PEERS"); list != "" {
		p.peers = strings.Split(list, ",")
		if len(p.peers) != nodes {
			faults = append(faults, fmt.Errorf("RING_PEERS=%q: want %d addresses, as PET_NNODES says", list, nodes))
		} else {
			p.listen = p.peers[p.rank]
		}
		return p, errors.Join(faults...)
	}
	port := strconv.Itoa(number("PET_MASTER_PORT", "29500", 1, 65535))
	name := firstPod.FindStringSubmatch(getenv("PET_MASTER_ADDR"))
	if name == nil {
		faults = append(faults,
			fmt.Errorf("PET_MASTER_ADDR=%q: want the address of the first pod, for example job-node-0-0.job",
				getenv("PET_MASTER_ADDR")))
		return p, errors.Join(faults...)
	}
	for rank := range nodes {
		p.peers = append(p.peers, net.JoinHostPort(fmt.Sprintf("%s-%d%s", name[1], rank, name[2]), port))
	}
	p.listen = net.JoinHostPort("", port)
	return p, errors.Join(faults...)
}
