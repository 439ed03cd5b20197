// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkpoint is the state after a step.
type checkpoint struct {
	Settings settings
	Step     int // How many steps are done.
	Weights  []float64
	Checksum string // Of the weights.
}

const checkpointFile = "checkpoint.json"

// save writes a checkpoint in place of the one before. A crash at any time leaves one of the two.
func (c checkpoint) save(folder string) error {
	c.Checksum = checksum(c.Weights)
	data, err := json.Marshal(c) // It writes as many digits of a number as tell it from its neighbours.
	if err != nil {
		return err
	}
	if err := writeDurably(folder, checkpointFile, data); err != nil {
		return fmt.Errorf("write the checkpoint of step %d: %w", c.Step, err)
	}
	return nil
}

func writeDurably(folder, name string, data []byte) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	path := filepath.Join(folder, name)
	file, err := os.Create(path + ".new") // Only rank 0 writes here.
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	parent, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// load reads the checkpoint in a folder. If there is none, it returns the state before the first step.
func load(folder string, s settings) (checkpoint, error) {
	start := checkpoint{Settings: s, Weights: newWeights(s.Seed, weightStream)}
	if folder == "" {
		return start, nil
	}
	path := filepath.Join(folder, checkpointFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return start, nil
	}
	if err != nil {
		return start, err
	}
	var found checkpoint
	if err := json.Unmarshal(data, &found); err != nil {
		return start, fmt.Errorf("read checkpoint %s: %w", path, err)
	}
	if found.Settings != s {
		return start, fmt.Errorf("checkpoint %s is of other settings: it has %+v, this run has %+v: "+
			"use these settings again, or another --checkpoint-dir", path, found.Settings, s)
	}
	if len(found.Weights) != weightCount || found.Step < 0 || checksum(found.Weights) != found.Checksum {
		return start, fmt.Errorf("checkpoint %s is damaged: %d weights with checksum %s, want %d with %s",
			path, len(found.Weights), checksum(found.Weights), weightCount, found.Checksum)
	}
	return found, nil
}
