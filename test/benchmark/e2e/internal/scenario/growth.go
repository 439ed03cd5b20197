// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

// Growth compares two parts of a run.
type Growth struct {
	// Second and Last are the means of the second and the last quarter.
	Second, Last float64
	// SecondRange and LastRange are the least and the most of these quarters.
	SecondRange, LastRange [2]float64
	// PerJob is the difference of the means for each job that ended in between.
	PerJob float64
	// Adjusted is the growth for each job that has ended while the number of TrainJobs on the hub is the same. That number
	// depends on the speed of the machine at the time, and much depends on that number.
	Adjusted float64
}

// Growth of a figure. It is false if the run was too short to tell.
func (e *Expiry) Growth(figure string) (Growth, bool) {
	n := len(e.Levels)
	if n < 4 {
		return Growth{}, false
	}
	var g Growth
	var jobsBefore, jobsAfter float64
	g.Second, jobsBefore, g.SecondRange = mean(e.Levels[n/4:n/2], figure)
	g.Last, jobsAfter, g.LastRange = mean(e.Levels[n-n/4:], figure)
	if jobsAfter <= jobsBefore {
		return g, false
	}
	g.PerJob = (g.Last - g.Second) / (jobsAfter - jobsBefore)
	g.Adjusted = adjusted(e.Levels[n/4:], figure)
	return g, true
}

func mean(levels []Level, figure string) (of, jobs float64, within [2]float64) {
	within = [2]float64{levels[0].Figures[figure], levels[0].Figures[figure]}
	for i := range levels {
		value := levels[i].Figures[figure]
		of += value
		jobs += float64(levels[i].Jobs)
		within = [2]float64{min(within[0], value), max(within[1], value)}
	}
	return of / float64(len(levels)), jobs / float64(len(levels)), within
}

// adjusted fits a figure to a + b * TrainJobs on the hub + c * jobs that have ended, by least squares, and returns c.
func adjusted(levels []Level, figure string) float64 {
	there, _, _ := mean(levels, TrainJobs)
	value, jobs, _ := mean(levels, figure)
	var tt, tj, jj, tv, jv float64 // Sums of the products of the deviations from the means.
	for i := range levels {
		t, j, v := levels[i].Figures[TrainJobs]-there, float64(levels[i].Jobs)-jobs, levels[i].Figures[figure]-value
		tt, tj, jj, tv, jv = tt+t*t, tj+t*j, jj+j*j, tv+t*v, jv+j*v
	}
	if tt == 0 { // The number never changed.
		return jv / jj
	}
	return (tt*jv - tj*tv) / (tt*jj - tj*tj)
}
