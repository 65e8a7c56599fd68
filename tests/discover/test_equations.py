"""Differential equations from trajectories of known systems."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import sympy
from scipy.integrate import solve_ivp

from numerate.discover import equations
from numerate.discover.parse import parse_formula
from numerate.discover.shooting import integrate
from numerate.discover.slopes import Slopes
from numerate.discover.trajectories import Trajectory, noise_level, smoothed

FOLDER = Path(os.environ.get("NUMERATE_DATA", "")) / "odebench"


def solve(right, start, end=10.0, points=150):
    t = np.linspace(0, end, points)
    return t, solve_ivp(right, (0, end), start, t_eval=t, rtol=1e-10, atol=1e-12).y.T


def predators(_, x):
    return [x[0] * (1.2 - 0.6 * x[1]), x[1] * (-1 + 0.4 * x[0])]


def pendulum(_, x):
    return [x[1], -0.9 * np.sin(x[0])]


def coefficients(formula):
    return {str(term): float(value) for term, value in formula.expand().as_coefficients_dict().items()}


def test_predators_and_prey_from_two_trajectories():
    runs = [solve(predators, start) for start in ((2.0, 0.5), (1.0, 3.0))]
    found = equations([t for t, _ in runs], [x for _, x in runs], names=["hares", "lynx"], seconds=2)
    assert coefficients(found.formulas[0]) == pytest.approx({"hares": 1.2, "hares*lynx": -0.6}, rel=1e-4)
    assert coefficients(found.formulas[1]) == pytest.approx({"lynx": -1, "hares*lynx": 0.4}, rel=1e-4)
    assert found.error < 1e-4


def test_a_function_in_the_equation_is_found():
    t, x = solve(pendulum, (2.0, 0.3))
    found = equations(t, x, names=["angle", "speed"], seconds=5)
    angle, speed = sympy.symbols("angle speed")
    assert found.formulas[0] == speed
    at = found.formulas[1].subs(speed, 0).subs(angle, 1.0)
    assert isinstance(at, sympy.Expr)
    assert float(at) == pytest.approx(-0.9 * np.sin(1.0), rel=1e-3)
    assert found.error < 1e-3


def test_noise_is_smoothed_and_constants_are_refined():
    t, x = solve(predators, (2.0, 0.5), end=12.0, points=400)
    noisy = x + 0.005 * np.random.default_rng(0).standard_normal(x.shape)
    found = equations(t, noisy, names=["hares", "lynx"], seconds=2)
    assert coefficients(found.formulas[0]) == pytest.approx({"hares": 1.2, "hares*lynx": -0.6}, rel=0.02)
    assert found.error < 0.05


def test_slopes_of_clean_data_are_accurate_and_say_how_much():
    t = np.linspace(0, 6, 120)
    got = smoothed(Trajectory(t, np.sin(t)[:, None]))
    miss = np.abs(got.slopes[6:-6, 0] - np.cos(t[6:-6]))
    assert miss.max() < 1e-8
    assert got.slope_errors[6:-6].max() < 1e-4


@pytest.mark.parametrize("noise", [1e-3, 1e-1])
def test_noise_is_measured(noise):
    t = np.sort(np.random.default_rng(1).uniform(0, 6, 600))
    t = np.linspace(0, 6, 600) + 0.2 * (t - np.linspace(0, 6, 600)) / 6
    x = np.sin(t) + noise * np.random.default_rng(0).standard_normal(len(t))
    assert noise_level(t, x) == pytest.approx(noise, rel=0.2)


def test_pieces_are_integrated_to_fourth_order():
    starts, steps = np.array([[1.0], [2.0]]), np.full((2, 5), 0.1)
    exact = starts[:, None] * np.exp(-0.1 * np.arange(1, 6))[None, :, None]
    errors = [np.abs(integrate(lambda x: -x, starts, steps, count) - exact).max() for count in (1, 2)]
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.1)


@pytest.mark.parametrize(
    ("t", "x", "sentence"),
    [
        (np.zeros(30), np.arange(30.0), "times must increase"),
        (np.arange(5.0), np.arange(5.0), "at least 20 points"),
        (np.arange(30.0), np.ones(30), "nothing to explain"),
        (np.arange(30.0), np.where(np.arange(30) == 3, np.nan, np.arange(30.0)), "row 4 is missing"),
    ],
    ids=["times", "few", "constant", "missing"],
)
def test_bad_trajectories_are_one_sentence(t, x, sentence):
    with pytest.raises(ValueError, match=sentence):
        equations(t, x, seconds=1)


def test_a_quotient_from_slopes_that_are_known_well():
    def enzyme(_, x):
        return [0.2 - 1.3 * x[0] / (x[0] + 0.4), 1.3 * x[0] / (x[0] + 0.4) - 0.5 * x[1]]

    runs = [solve(enzyme, start, points=100) for start in ((3.0, 0.1), (1.0, 2.0))]
    smooth = [smoothed(Trajectory(t, x)) for t, x in runs]
    states, slopes = (np.concatenate(each) for each in zip(*[(s.states.x[6:-6], s.slopes[6:-6]) for s in smooth]))
    a, b = sympy.symbols("a b")
    flux = 1.3 * a / (a + 0.4)
    for i, truth in enumerate((0.2 - flux, flux - 0.5 * b)):
        formula = Slopes(states, slopes[:, i], np.ones(len(states)), 1e-7, ("a", "b")).quotient()
        assert abs(float((formula - truth).subs({a: 1.7, b: 0.6}))) < 1e-6


def test_fast_waves_without_noise_are_not_noise():
    t = np.linspace(0, 10, 150)
    assert noise_level(t, np.sin(5 * t)) < 1e-7
    noisy = np.sin(5 * t) + 1e-3 * np.random.default_rng(0).standard_normal(len(t))
    assert noise_level(t, noisy) == pytest.approx(1e-3, rel=0.35)


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason="NUMERATE_DATA has no folder odebench")
def test_most_systems_of_odebench_are_recovered():
    systems = json.loads((FOLDER / "odebench_equations.json").read_text())
    right, total = 0, 0
    for system in systems[::4]:
        written = system["substituted"][0] if isinstance(system["substituted"][0], list) else system["substituted"]
        names = [f"x_{i}" for i in range(system["dim"])]
        truth = [sympy.lambdify(list(map(sympy.Symbol, names)), parse_formula(each)) for each in written]
        runs = [solve(lambda t, x, f=truth: [float(g(*x)) for g in f], start) for start in system["init"]]
        runs = [(t, x) for t, x in runs if len(x) == len(t)]
        if not runs:
            continue
        found = equations([t for t, _ in runs], [x for _, x in runs], names=names, seconds=3)
        states = np.concatenate([x for _, x in runs])
        for formula, function in zip(found.formulas, truth):
            ours = sympy.lambdify(list(map(sympy.Symbol, names)), formula)(*states.T)
            goal = np.broadcast_to(function(*states.T), len(states))
            right += np.sqrt(np.mean((ours - goal) ** 2)) < 1e-3 * np.sqrt(np.mean(goal**2))
            total += 1
    assert total == 29
    assert right >= 26
