// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"sync"
)

// settings are everything that the weights after a step depend on.
type settings struct {
	Nodes, Shards int
	Seed          uint64
	Batch         int
}

func defaultSettings() settings { return settings{Seed: 1, Batch: 64} }

// The model is a network with one hidden layer. It learns what another network with the same shape says.
//
// Nothing here calls a function of math that differs between architectures, and products are converted before they are
// added: Go would otherwise fuse the two on some architectures, which rounds once less.
const (
	inputs       = 16
	hidden       = 48
	weightCount  = inputs*hidden + hidden + hidden + 1 // Of the hidden layer with its biases, of the output with its bias.
	learningRate = 0.05
)

type sample struct {
	input  [inputs]float64
	target float64
}

func uniform(random *rand.Rand) float64 { return 2*random.Float64() - 1 }

// newWeights draws weights.
func newWeights(seed, stream uint64) []float64 {
	random := rand.New(rand.NewPCG(seed, stream))
	weights := make([]float64, weightCount)
	for i := range weights {
		weights[i] = uniform(random) / 4
	}
	return weights
}

// The streams of random numbers that settings.Seed has. Samples have the streams after these.
const (
	teacherStream = iota
	weightStream
	testStream
	sampleStream
)

// data draws samples. The same index gives the same sample on each node.
type data struct {
	seed    uint64
	teacher []float64
}

func newData(seed uint64) data { return data{seed: seed, teacher: newWeights(seed, teacherStream)} }

func (d data) sample(stream uint64) sample {
	random := rand.New(rand.NewPCG(d.seed, stream))
	var s sample
	for i := range s.input {
		s.input[i] = uniform(random)
	}
	var activations [hidden]float64
	s.target = 4 * predict(d.teacher, &s.input, &activations)
	return s
}

// predict also returns the activations of the hidden layer.
func predict(weights []float64, input *[inputs]float64, activations *[hidden]float64) float64 {
	biases, output := weights[inputs*hidden:], weights[inputs*hidden+hidden:]
	sum := output[hidden]
	for h := range hidden {
		activation := biases[h]
		for i, x := range input {
			activation += float64(weights[h*inputs+i] * x)
		}
		activations[h] = max(0, activation)
		sum += float64(output[h] * activations[h])
	}
	return sum
}

// addGradient adds the gradient of a sample's squared error, and returns the error.
func addGradient(gradient, weights []float64, s sample) float64 {
	var activations [hidden]float64
	difference := predict(weights, &s.input, &activations) - s.target
	output := weights[inputs*hidden+hidden:]
	slope := 2 * difference
	gradient[weightCount-1] += slope
	for h := range hidden {
		if activations[h] <= 0 {
			continue
		}
		gradient[inputs*hidden+hidden+h] += float64(slope * activations[h])
		back := float64(slope * output[h])
		gradient[inputs*hidden+h] += back
		for i, x := range s.input {
			gradient[h*inputs+i] += float64(back * x)
		}
	}
	return float64(difference * difference)
}

// partOfGradient computes the part of a step's gradient that one rank contributes. The last element is the sum of
// squared errors.
func partOfGradient(s settings, d data, weights []float64, rank, step int) []float64 {
	parts := make([][]float64, s.Shards)
	var running sync.WaitGroup
	for shard := range s.Shards {
		running.Go(func() {
			part := make([]float64, weightCount+1)
			for i := rank*s.Shards + shard; i < s.Batch; i += s.Nodes * s.Shards {
				part[weightCount] += addGradient(part, weights, d.sample(sampleStream+uint64(step*s.Batch+i)))
			}
			parts[shard] = part
		})
	}
	running.Wait()
	total := make([]float64, weightCount+1)
	for _, part := range parts {
		add(total, part)
	}
	return total
}

func add(sum, values []float64) {
	for i, value := range values {
		sum[i] += value
	}
}

// update makes one step with the sum of all gradients.
func update(s settings, weights, gradient []float64) {
	for i := range weights {
		weights[i] -= float64(learningRate * (gradient[i] / float64(s.Batch)))
	}
}

// testLoss is the mean squared error for samples that the training never sees.
func testLoss(d data, weights []float64) float64 {
	const count = 256
	test := data{seed: ^d.seed, teacher: d.teacher}
	sum := 0.0
	for i := range uint64(count) {
		s := test.sample(testStream + i)
		var activations [hidden]float64
		difference := predict(weights, &s.input, &activations) - s.target
		sum += float64(difference * difference)
	}
	return sum / count
}

// checksum is the SHA-256 of the weights' bits.
func checksum(weights []float64) string {
	sum := sha256.Sum256(encode(weights))
	return hex.EncodeToString(sum[:])
}

func encode(values []float64) []byte {
	buffer := make([]byte, 0, 8*len(values))
	for _, value := range values {
		buffer = binary.LittleEndian.AppendUint64(buffer, math.Float64bits(value))
	}
	return buffer
}

func decode(values []float64, buffer []byte) {
	for i := range values {
		values[i] = math.Float64frombits(binary.LittleEndian.Uint64(buffer[8*i:]))
	}
}
