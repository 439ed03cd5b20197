// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// NewFleet starts connections with these options. Stop ends them.
func (s *Set) NewFleet(options remote.Options) (*remote.Fleet, error) {
	ctx, end := context.WithCancel(context.Background())
	fleet, err := remote.NewFleet(ctx, options)
	if err != nil {
		end()
		return nil, err
	}
	s.Cleanup(func() error {
		end()
		fleet.Wait()
		return nil
	})
	return fleet, nil
}

// Connect connects a fleet to the server, with all rights, and returns the connection.
func (s *Server) Connect(fleet *remote.Fleet, name v1alpha1.ClusterName) *remote.Cluster {
	fleet.Ensure(name, remote.Credentials{Config: s.Cluster.Config, Fingerprint: "admin"}, s.ID)
	connection, _ := fleet.Get(name)
	return connection
}
