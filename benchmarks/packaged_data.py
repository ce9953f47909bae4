"""Make the measured data of the package; run as `python benchmarks/packaged_data.py [NAME …]`.

Names: people (`people.atlas`, learned from the 30 CIPIC subjects of the data folder and cipic_003),
recording (`recording.flac`, two synthetic talkers with the ears of cipic_021, which is not in the
atlas of people).
"""

import argparse

from protocol import DATA, load_head

import earatlas as ea
from earatlas.packaged_atlases import PEOPLE_ATLAS

NAMES = ("people", "recording")


def main() -> None:
    """Write the named files into the package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help="default: all")
    names = parser.parse_args().names
    if "people" in names:
        files = [*sorted((DATA / "people").glob("*.sofa")), DATA / "heads" / "cipic_003.sofa"]
        print(ea.learn_population(files).save(PEOPLE_ATLAS))
    if "recording" in names:
        voices = [ea.synthetic_speech(2.5, seed=seed) for seed in (1, 2)]
        settings = ea.SceneSettings(snr_db=40.0)
        directions = [[40, 0], [-60, 20]]
        scene = ea.render_scene(load_head("cipic_021"), voices, directions, settings=settings)
        print(scene.mixture.write(PEOPLE_ATLAS.with_name("recording.flac")))
        print(scene.directions)


if __name__ == "__main__":
    main()
