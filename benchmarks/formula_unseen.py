# ruff: noqa: E501
"""Laws kept apart: written down before the search was, and never looked at while it was developed.

``LAWS`` come from textbooks of engineering, chemistry, biology, economics and physics outside Feynman's lectures, with
plausible ranges. ``random_formulas`` draws from a small grammar with a fixed seed. Their failures are not inspected;
the benchmark reports them as a suite of their own.
"""

import numpy as np

# name: (formula, {input: (low, high)})
LAWS: dict[str, tuple[str, dict[str, tuple[float, float]]]] = {
    "michaelis_menten": ("V*S/(K + S)", {"V": (1, 10), "S": (0.1, 10), "K": (0.5, 5)}),
    "hill": ("V*S**n/(K**n + S**n)", {"V": (1, 10), "S": (0.2, 5), "K": (0.5, 3), "n": (1, 4)}),
    "competitive_inhibition": (
        "V*S/(K*(1 + I/Ki) + S)",
        {"V": (1, 5), "S": (0.5, 10), "K": (0.5, 3), "I": (0.1, 5), "Ki": (0.5, 4)},
    ),
    "substrate_inhibition": ("V*S/(K + S + S**2/Ki)", {"V": (1, 5), "S": (0.1, 10), "K": (0.5, 3), "Ki": (1, 10)}),
    "monod_with_decay": ("mu*S/(K + S) - d", {"mu": (0.5, 2), "S": (0.1, 5), "K": (0.2, 2), "d": (0.05, 0.4)}),
    "langmuir": ("q*k*p/(1 + k*p)", {"q": (1, 5), "k": (0.1, 3), "p": (0.1, 10)}),
    "freundlich": ("k*c**(1/n)", {"k": (0.5, 5), "c": (0.1, 10), "n": (1, 5)}),
    "bet": ("v*c*x/((1 - x)*(1 + (c - 1)*x))", {"v": (1, 4), "c": (2, 50), "x": (0.05, 0.5)}),
    "arrhenius": ("A*exp(-E/(8.314*T))", {"A": (1, 10), "E": (5000, 20000), "T": (280, 400)}),
    "nernst": ("E0 - 8.314*T/(n*96485)*log(Q)", {"E0": (0.1, 1.5), "T": (280, 350), "n": (1, 4), "Q": (0.01, 100)}),
    "antoine": ("exp(A - B/(C + T))", {"A": (8, 10), "B": (1500, 2500), "C": (200, 250), "T": (20, 120)}),
    "van_der_waals": ("8.314*T/(V - b) - a/V**2", {"T": (280, 500), "V": (0.5, 3), "b": (0.02, 0.1), "a": (100, 600)}),
    "redlich_kwong": (
        "8.314*T/(V - b) - a/(sqrt(T)*V*(V + b))",
        {"T": (280, 500), "V": (0.5, 3), "b": (0.02, 0.1), "a": (1000, 20000)},
    ),
    "debye_hueckel": ("-0.509*z**2*sqrt(I)/(1 + B*a*sqrt(I))", {"z": (1, 3), "I": (0.001, 0.3), "B": (1, 4), "a": (0.5, 2)}),
    "henderson_hasselbalch": ("pK + log(A/H)/log(10)", {"pK": (3, 9), "A": (0.01, 1), "H": (0.01, 1)}),
    "goldman": (
        "25.7*log((Ko + p*No)/(Ki + p*Ni))",
        {"Ko": (2, 10), "Ki": (100, 160), "No": (100, 160), "Ni": (5, 20), "p": (0.01, 0.3)},
    ),
    "manning": ("R**(2/3)*sqrt(S)/n", {"R": (0.2, 5), "S": (0.0005, 0.02), "n": (0.01, 0.05)}),
    "darcy_weisbach": (
        "f*L*rho*v**2/(2*D)",
        {"f": (0.01, 0.05), "L": (1, 100), "rho": (800, 1100), "v": (0.5, 5), "D": (0.05, 1)},
    ),
    "swamee_jain": ("0.25*log(10)**2/log(e/(3.7*D) + 5.74/Re**0.9)**2", {"e": (1e-5, 1e-3), "D": (0.05, 1), "Re": (5e3, 1e6)}),
    "bernoulli": ("p + rho*v**2/2 + 9.81*rho*h", {"p": (1e4, 1e5), "rho": (800, 1200), "v": (0.5, 10), "h": (0.5, 10)}),
    "terminal_speed": ("sqrt(2*9.81*m/(rho*A*C))", {"m": (1, 100), "rho": (0.8, 1.4), "A": (0.1, 2), "C": (0.2, 1.5)}),
    "poiseuille": ("pi*p*r**4/(8*mu*L)", {"p": (10, 1000), "r": (0.01, 0.1), "mu": (0.001, 0.1), "L": (0.5, 10)}),
    "stokes_settling": ("2/9*(rp - rf)*9.81*r**2/mu", {"rp": (1500, 3000), "rf": (800, 1200), "r": (0.001, 0.01), "mu": (0.5, 2)}),
    "ergun": (
        "150*mu*(1 - e)**2*v/(e**3*d**2) + 1.75*(1 - e)*rho*v**2/(e**3*d)",
        {"mu": (0.001, 0.01), "e": (0.3, 0.6), "v": (0.1, 2), "d": (0.005, 0.05), "rho": (1, 10)},
    ),
    "dittus_boelter": ("0.023*Re**0.8*Pr**0.4", {"Re": (1e4, 1e5), "Pr": (0.7, 100)}),
    "stefan_boltzmann_exchange": ("5.67*e*A*(T1**4 - T2**4)", {"e": (0.1, 1), "A": (0.5, 5), "T1": (3, 8), "T2": (2, 7)}),
    "weir": ("2/3*C*b*sqrt(2*9.81)*h**1.5", {"C": (0.55, 0.7), "b": (0.5, 5), "h": (0.05, 1)}),
    "priestley_taylor": ("1.26*D/(D + g)*(R - G)", {"D": (0.05, 0.3), "g": (0.05, 0.08), "R": (50, 400), "G": (1, 40)}),
    "magnus": ("6.112*exp(17.62*T/(243.12 + T))", {"T": (-30, 40)}),
    "wind_chill": ("13.12 + 0.6215*T - 11.37*v**0.16 + 0.3965*T*v**0.16", {"T": (-30, 10), "v": (5, 60)}),
    "euler_buckling": ("pi**2*E*I/(k*L)**2", {"E": (50, 210), "I": (1, 50), "k": (0.5, 2), "L": (1, 6)}),
    "beam_deflection": (
        "w*x*(L**3 - 2*L*x**2 + x**3)/(24*E*I)",
        {"w": (1, 10), "x": (0.1, 2), "L": (2, 5), "E": (50, 210), "I": (1, 10)},
    ),
    "mohr_principal": ("(a + b)/2 + sqrt((a - b)**2/4 + t**2)", {"a": (-50, 100), "b": (-50, 100), "t": (1, 50)}),
    "von_mises": ("sqrt(a**2 - a*b + b**2 + 3*t**2)", {"a": (-50, 100), "b": (-50, 100), "t": (1, 50)}),
    "thin_lens": ("1/(1/f - 1/d)", {"f": (1, 3), "d": (4, 20)}),
    "lensmaker": ("(n - 1)*(1/a - 1/b)", {"n": (1.3, 1.9), "a": (1, 5), "b": (2, 10)}),
    "sellmeier": ("sqrt(1 + B*l**2/(l**2 - C))", {"B": (0.5, 2), "l": (0.4, 2), "C": (0.005, 0.02)}),
    "snell": ("asin(a/b*sin(t))", {"a": (1, 1.3), "b": (1.4, 1.9), "t": (0.1, 1.4)}),
    "great_circle": ("acos(sin(a)*sin(b) + cos(a)*cos(b)*cos(l))", {"a": (-1.2, 1.2), "b": (-1.2, 1.2), "l": (0.1, 3)}),
    "rlc_impedance": ("sqrt(R**2 + (w*L - 1/(w*C))**2)", {"R": (1, 10), "w": (0.5, 5), "L": (0.5, 4), "C": (0.1, 2)}),
    "rc_charging": ("V*(1 - exp(-t/(R*C)))", {"V": (1, 12), "t": (0.1, 5), "R": (0.5, 4), "C": (0.5, 3)}),
    "diode": ("Is*(exp(V/(n*Vt)) - 1)", {"Is": (0.1, 2), "V": (0.1, 0.7), "n": (1, 2), "Vt": (0.2, 0.4)}),
    "log_mean_temperature": ("(a - b)/log(a/b)", {"a": (20, 80), "b": (5, 60)}),
    "fin_efficiency": ("tanh(m*L)/(m*L)", {"m": (0.5, 5), "L": (0.1, 2)}),
    "logistic_growth": ("K/(1 + (K - N)/N*exp(-r*t))", {"K": (50, 200), "N": (1, 20), "r": (0.1, 1), "t": (0.1, 10)}),
    "gompertz": ("a*exp(-b*exp(-c*t))", {"a": (1, 10), "b": (1, 5), "c": (0.1, 1), "t": (0.1, 10)}),
    "von_bertalanffy": ("L*(1 - exp(-k*(t - s)))", {"L": (20, 100), "k": (0.05, 0.5), "t": (2, 15), "s": (-1, 1)}),
    "bateman": (
        "D*a*(exp(-e*t) - exp(-a*t))/(V*(a - e))",
        {"D": (10, 100), "a": (1, 3), "e": (0.1, 0.8), "V": (5, 40), "t": (0.1, 8)},
    ),
    "half_life": ("N*2**(-t/T)", {"N": (1, 100), "t": (0.1, 10), "T": (1, 8)}),
    "holling_type_3": ("a*N**2/(1 + a*h*N**2)", {"a": (0.1, 2), "N": (0.2, 8), "h": (0.05, 1)}),
    "ricker": ("a*S*exp(-b*S)", {"a": (1, 8), "S": (0.1, 10), "b": (0.05, 0.5)}),
    "beverton_holt": ("R*S/(1 + S/M)", {"R": (1, 5), "S": (0.1, 50), "M": (5, 50)}),
    "selection": (
        "p*(p*a + (1 - p)*b)/(p**2*a + 2*p*(1 - p)*b + (1 - p)**2*c)",
        {"p": (0.05, 0.95), "a": (0.5, 1.5), "b": (0.5, 1.5), "c": (0.5, 1.5)},
    ),
    "kleiber": ("70*m**0.75", {"m": (0.02, 500)}),
    "cobb_douglas": ("A*K**a*L**(1 - a)", {"A": (0.5, 3), "K": (1, 20), "L": (1, 20), "a": (0.2, 0.5)}),
    "ces": ("A*(0.4*K**r + 0.6*L**r)**(1/r)", {"A": (0.5, 3), "K": (1, 10), "L": (1, 10), "r": (0.3, 0.9)}),
    "compound_interest": ("P*(1 + r/n)**(n*t)", {"P": (100, 1000), "r": (0.01, 0.15), "n": (1, 12), "t": (1, 20)}),
    "annuity": ("P*r/(1 - (1 + r)**(-n))", {"P": (100, 1000), "r": (0.01, 0.15), "n": (2, 30)}),
    "gordon_growth": ("D*(1 + g)/(r - g)", {"D": (1, 10), "g": (0.005, 0.04), "r": (0.06, 0.15)}),
    "solow_steady_state": ("(s/(n + g + d))**(a/(1 - a))", {"s": (0.1, 0.4), "n": (0.005, 0.03), "g": (0.005, 0.03), "d": (0.03, 0.08), "a": (0.25, 0.45)}),
    "kelly": ("p - (1 - p)/b", {"p": (0.3, 0.9), "b": (0.5, 4)}),
    "rocket": ("v*log(m/f)", {"v": (2, 5), "m": (5, 50), "f": (1, 4)}),
    "projectile": ("x*tan(a) - 9.81*x**2/(2*v**2*cos(a)**2)", {"x": (1, 20), "a": (0.2, 1.2), "v": (10, 40)}),
    "hohmann": ("sqrt(m/r)*(sqrt(2*R/(r + R)) - 1)", {"m": (1, 5), "r": (1, 2), "R": (2.5, 8)}),
    "relativistic_kinetic_energy": ("m*c**2*(1/sqrt(1 - v**2/c**2) - 1)", {"m": (1, 5), "c": (3, 10), "v": (0.5, 2.5)}),
    "lorentzian": ("A/(1 + ((x - m)/g)**2)", {"A": (1, 5), "x": (0, 10), "m": (3, 7), "g": (0.5, 3)}),
    "damped_oscillation": ("A*exp(-g*t)*cos(w*t)", {"A": (1, 5), "g": (0.1, 0.8), "t": (0, 5), "w": (1, 3)}),
    "amplitude_modulation": ("A*(1 + m*cos(a*t))*cos(w*t)", {"A": (1, 3), "m": (0.2, 0.9), "a": (0.5, 1.5), "w": (2, 4), "t": (0, 3)}),
}  # fmt: skip

FUNCTIONS = ("sin", "cos", "exp", "log", "sqrt", "tanh")


def random_formulas(count: int = 40, seed: int = 20260917) -> dict[str, tuple[str, dict[str, tuple[float, float]]]]:
    """Formulas from the grammar  e -> e + e | e - e | e * e | e / e | f(e) | x | c x | e**2,  two to six leaves."""
    rng = np.random.default_rng(seed)
    formulas: dict[str, tuple[str, dict[str, tuple[float, float]]]] = {}
    while len(formulas) < count:
        inputs = [f"x{i}" for i in range(int(rng.integers(1, 5)))]
        text = _draw(rng, inputs, int(rng.integers(2, 7)))
        if all(name in text for name in inputs) and _is_finite(text, inputs):
            formulas[f"random_{len(formulas)}"] = (text, dict.fromkeys(inputs, (0.5, 4.0)))
    return formulas


def _draw(rng: np.random.Generator, inputs: list[str], leaves: int) -> str:
    if leaves == 1:
        name = inputs[rng.integers(len(inputs))]
        return name if rng.random() < 0.7 else f"{np.round(rng.uniform(0.2, 4), 2)}*{name}"
    if rng.random() < 0.3:
        inner = _draw(rng, inputs, leaves - 1)
        return f"({inner})**2" if rng.random() < 0.25 else f"{FUNCTIONS[rng.integers(len(FUNCTIONS))]}({inner})"
    left = int(rng.integers(1, leaves))
    sign = "+-*/"[rng.integers(4)]
    return f"({_draw(rng, inputs, left)} {sign} {_draw(rng, inputs, leaves - left)})"


def _is_finite(text: str, inputs: list[str]) -> bool:
    """Real, not constant and of moderate size on the whole box."""
    X = np.random.default_rng(0).uniform(0.5, 4.0, (2000, len(inputs)))
    scope = {name: getattr(np, name) for name in FUNCTIONS} | dict(zip(inputs, X.T))
    with np.errstate(all="ignore"):
        y = eval(text, {"__builtins__": {}}, scope)  # the text was drawn above
    return bool(np.isfinite(y).all() and np.std(y) > 1e-3 * np.abs(y).max() and np.abs(y).max() < 1e4)
