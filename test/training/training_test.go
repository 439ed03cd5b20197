// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/test/ports"
)

// onRing runs a function on each rank of a ring.
func onRing(t *testing.T, world int, work func(r *ring) error) {
	t.Helper()
	o := options{rendezvous: patience, peerTimeout: patience, settings: settings{Nodes: world}}
	for range world {
		address, err := ports.Free()
		if err != nil {
			t.Fatal(err)
		}
		o.place.peers = append(o.place.peers, address)
	}
	ended := make(chan error)
	for rank, address := range o.place.peers {
		own := o
		own.place.rank, own.place.listen = rank, address
		go func() {
			r, err := connect(t.Context(), own)
			if err == nil {
				defer r.close()
				err = work(r)
			}
			ended <- err
		}()
	}
	for range world {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestRing(t *testing.T) {
	for world := 1; world <= 5; world++ {
		for _, length := range []int{0, 1, 3, 5, 1000} {
			t.Run(fmt.Sprintf("%dRanks%dValues", world, length), func(t *testing.T) {
				want := make([]float64, length)
				for i := range want {
					want[i] = float64(i*world) + float64(world*(world-1))/2
				}
				onRing(t, world, func(r *ring) error {
					values := make([]float64, length)
					for i := range values {
						values[i] = float64(i + r.rank)
					}
					if err := r.allReduce(values); err != nil {
						return err
					}
					if !slices.Equal(values, want) {
						return fmt.Errorf("rank %d has %v, want %v", r.rank, values, want)
					}
					for from := range r.world {
						sent := slices.Repeat([]float64{float64(r.rank)}, length)
						if err := r.broadcast(from, sent); err != nil {
							return err
						}
						if !slices.Equal(sent, slices.Repeat([]float64{float64(from)}, length)) {
							return fmt.Errorf("rank %d has %v from rank %d", r.rank, sent, from)
						}
					}
					all, err := r.allGather([]byte{byte(r.rank)})
					if err != nil {
						return err
					}
					for rank, one := range all {
						if one[0] != byte(rank) {
							return fmt.Errorf("rank %d has %v of rank %d", r.rank, one, rank)
						}
					}
					return nil
				})
			})
		}
	}
}

func TestAgree(t *testing.T) {
	onRing(t, 3, func(r *ring) error {
		if err := r.agree("the weather", []byte("same")); err != nil {
			return err
		}
		err := r.agree("the weather", []byte{"abb"[r.rank]})
		if err == nil || !strings.HasPrefix(err.Error(), "the weather of rank") {
			return fmt.Errorf("rank %d says %w about what differs", r.rank, err)
		}
		return nil
	})
}

func TestReadPlace(t *testing.T) {
	cases := map[string]struct {
		reason string
		env    map[string]string
		want   place
		faults []string
	}{
		"Torch": {
			reason: "What the torch policy sets.",
			env: map[string]string{
				"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "auto",
				"PET_MASTER_ADDR": "ring-0-node-0-0.ring-0", "PET_MASTER_PORT": "29500",
			},
			want: place{
				rank: 1, listen: ":29500", shards: 1,
				peers: []string{"ring-0-node-0-0.ring-0:29500", "ring-0-node-0-1.ring-0:29500"},
			},
		},
		"Processes": {
			reason: "A number of processes divides the samples of a node.",
			env: map[string]string{
				"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "4",
				"PET_MASTER_ADDR": "ring-node-0-0", "PET_MASTER_PORT": "1",
			},
			want: place{listen: ":1", shards: 4, peers: []string{"ring-node-0-0:1"}},
		},
		"Peers": {
			reason: "Without a cluster.",
			env:    map[string]string{"PET_NNODES": "2", "PET_NODE_RANK": "0", "RING_PEERS": "127.0.0.1:1,127.0.0.1:2"},
			want:   place{listen: "127.0.0.1:1", shards: 1, peers: []string{"127.0.0.1:1", "127.0.0.1:2"}},
		},
		"Nothing": {
			reason: "All faults are named.",
			faults: []string{
				`PET_NNODES="": want a number`, `PET_NODE_RANK=""`, `PET_MASTER_PORT=""`, `PET_MASTER_ADDR="": want the address`,
			},
		},
		"Range": {
			reason: "An elastic range of nodes is none, and the rank must be one of the ranks.",
			env: map[string]string{
				"PET_NNODES": "1:4", "PET_NODE_RANK": "3", "PET_NPROC_PER_NODE": "0", "RING_PEERS": "a:1,b:2",
			},
			faults: []string{
				`PET_NNODES="1:4"`, `PET_NODE_RANK="3": want a number from 0 to 0`, `PET_NPROC_PER_NODE="0"`, "want 1 addresses",
			},
		},
		"Address": {
			reason: "The names of the other pods cannot come from any name.",
			env: map[string]string{
				"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "master.example.com", "PET_MASTER_PORT": "29500",
			},
			faults: []string{
				`PET_MASTER_ADDR="master.example.com": want the address of the first pod, for example job-node-0-0.job`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readPlace(func(name string) string { return tc.env[name] })
			if tc.faults == nil {
				if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(place{})); diff != "" || err != nil {
					t.Errorf("%s\nerror %v, -want +got:\n%s", tc.reason, err, diff)
				}
				return
			}
			for _, fault := range tc.faults {
				if err == nil || !strings.Contains(err.Error(), fault) {
					t.Errorf("%s\nthe error is %v, want %s", tc.reason, err, fault)
				}
			}
		})
	}
}

func TestGradient(t *testing.T) {
	d := newData(7)
	weights := newWeights(7, weightStream)
	s := d.sample(sampleStream)
	gradient := make([]float64, weightCount)
	addGradient(gradient, weights, s)
	const distance = 1e-6
	loss := func(i int, by float64) float64 {
		moved := slices.Clone(weights)
		moved[i] += by
		return addGradient(make([]float64, weightCount), moved, s)
	}
	for i := range weights {
		slope := (loss(i, distance) - loss(i, -distance)) / (2 * distance)
		if math.Abs(slope-gradient[i]) > 1e-5*max(1, math.Abs(slope)) {
			t.Errorf("the slope at weight %d is %g, its gradient %g", i, slope, gradient[i])
		}
	}
}

func TestTrainingLearns(t *testing.T) {
	s := defaultSettings()
	s.Nodes, s.Shards = 1, 1
	d, weights := newData(s.Seed), newWeights(s.Seed, weightStream)
	before := testLoss(d, weights)
	for step := range 400 {
		update(s, weights, partOfGradient(s, d, weights, 0, step))
	}
	if after := testLoss(d, weights); after > before/4 {
		t.Errorf("the loss is %g after 400 steps, and was %g", after, before)
	}
}

func TestCheckpoint(t *testing.T) {
	folder, s := filepath.Join(t.TempDir(), "new"), settings{Nodes: 2, Shards: 1, Seed: 3, Batch: 4}
	fresh, err := load(folder, s)
	if err != nil || fresh.Step != 0 {
		t.Fatalf("load of an empty folder: step %d, %v", fresh.Step, err)
	}
	fresh.Step = 5
	fresh.Weights[0] = 1.0 / 3
	fresh.Weights[1] = math.Nextafter(0.1, 1)
	if err := fresh.save(folder); err != nil {
		t.Fatal(err)
	}
	// What a crash in the middle of the next checkpoint leaves.
	if err := os.WriteFile(filepath.Join(folder, checkpointFile+".new"), []byte(`{"Step":6,"We`), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := load(folder, s)
	if err != nil {
		t.Fatal(err)
	}
	if got.Step != 5 || checksum(got.Weights) != checksum(fresh.Weights) {
		t.Errorf("loaded step %d with %s, want 5 with %s", got.Step, checksum(got.Weights), checksum(fresh.Weights))
	}
	other := s
	other.Nodes = 3
	if _, err := load(folder, other); err == nil || !strings.Contains(err.Error(), "Nodes:2") {
		t.Errorf("load with other settings: %v", err)
	}
	path := filepath.Join(folder, checkpointFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(data), "0.3333333333333333", "0.3333333333333334", 1)
	if damaged == string(data) {
		t.Fatal("the weight is not in the checkpoint")
	}
	if err := os.WriteFile(path, []byte(damaged), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := load(folder, s); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("load of a damaged checkpoint: %v", err)
	}
}

func TestParse(t *testing.T) {
	env := map[string]string{"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "a-0", "PET_MASTER_PORT": "1"}
	getenv := func(name string) string { return env[name] }
	o, err := parse([]string{"--steps=5", "--peer-timeout=3s"}, getenv, os.Stderr)
	if err != nil || o.steps != 5 || o.peerTimeout != 3*time.Second || o.settings.Nodes != 1 || o.settings.Shards != 1 {
		t.Errorf("options are %+v, %v", o, err)
	}
	for flag, want := range map[string]string{
		"--batch=0":         "--batch=0: want at least 1",
		"--peer-timeout=0s": "--peer-timeout=0s: want more than 0",
		"x":                 `argument "x": want flags`,
	} {
		if _, err := parse([]string{flag}, getenv, os.Stderr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}
