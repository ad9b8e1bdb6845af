"""What the target is asked while it writes the training text: our own templates over our own topics.

Two sorts. Questions are whole user turns. Beginnings are the first words of a user turn that the target
finishes itself, which gives passages to summarize, recipes to change and code to explain that nobody wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Template(NamedTuple):
    """A user turn with a place `{}` for a topic of the list named by `over`."""

    kind: str
    text: str
    over: str


def _lines(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace("\n", ",").split(",") if part.strip())


TOPICS: dict[str, tuple[str, ...]] = {
    "subject": _lines("""
        gravity, volcanoes, earthquakes, the water cycle, black holes, DNA, vaccines, the immune system
        electricity, magnetism, plate tectonics, evolution, ecosystems, coral reefs, rainforests, deserts, glaciers
        the ozone layer, renewable energy, nuclear power, wind turbines, solar panels, batteries, semiconductors
        the internet, encryption, machine learning, robotics, satellites, telescopes, microscopes, the printing press
        the steam engine, the Industrial Revolution, the Renaissance, ancient Egypt, the Roman Empire, the Silk Road
        the French Revolution, the Cold War, the Middle Ages, the Vikings, the Aztecs, democracy, constitutions, taxes
        inflation, interest rates, supply and demand, globalization, trade unions, insurance, stock markets, budgets
        probability, prime numbers, fractions, algebra, geometry, statistics, logic, calculus, infinity, algorithms
        jazz, opera, painting, sculpture, architecture, photography, cinema, poetry, novels, theatre, mythology
        chess, football, tennis, swimming, cycling, yoga, meditation, sleep, nutrition, vitamins, allergies, first aid
        bees, whales, wolves, penguins, elephants, spiders, butterflies, owls, sharks, dinosaurs, mushrooms, trees
        bread, cheese, chocolate, coffee, tea, rice, spices, olive oil, fermentation, soil, composting, gardening
        recycling, plastic pollution, climate change, tides, ocean currents, hurricanes, lightning, clouds, snow
        the Moon, Mars, comets, galaxies, the Sun, time zones, calendars, maps, compasses, bridges, tunnels, airplanes
        submarines, railways, electric cars, elevators, clocks, glass, paper, concrete, steel, rubber, cotton, silk
        antibiotics, hormones, the heart, the lungs, the brain, the skeleton, teeth, blood types, genes, viruses
        bacteria, atoms, molecules, acids and bases, crystals, lasers, sound, light, heat, pressure, friction, energy
        rockets, space stations, asteroids, eclipses, the seasons, the atmosphere, rivers, lakes, islands, caves, sand
        the Amazon, the Sahara, Antarctica, the Himalayas, the Mediterranean Sea, Japan, Brazil, Kenya, India, Norway
        Leonardo da Vinci, Marie Curie, Isaac Newton, Charles Darwin, Cleopatra, Shakespeare, Mozart, Galileo
        the Olympic Games, the United Nations, the Great Depression, the Black Death, the Magna Carta, samurai, castles
        the telephone, radio, television, the camera, the bicycle, the sewing machine, refrigerators, microwaves, robots
        databases, operating systems, web browsers, search engines, spreadsheets, open source software, compilers
        virtual reality, video games, barcodes, GPS, 3D printing, cybersecurity, passwords, cloud computing, recursion
        marketing, advertising, mortgages, pensions, entrepreneurship, customer service, negotiation, accounting
        ballet, folk music, the guitar, the piano, origami, pottery, knitting, calligraphy, comics, fairy tales, haiku
        basketball, skiing, surfing, climbing, sailing, fishing, camping, karate, gymnastics, rugby, dance, puzzles
        horses, cats, dogs, ants, frogs, snakes, eagles, dolphins, octopuses, bats, kangaroos, parrots, roses, cacti
        bananas, potatoes, tomatoes, apples, honey, salt, sugar, pasta, pizza, sushi, soup, eggs, nuts, beans, milk
        ethics, justice, free speech, human rights, voting, courts, the police, museums, libraries, schools, hospitals
        friendship, honesty, leadership, creativity, teamwork, stress, habits, memory, language, dreams, emotions
        """),
    "hero": _lines("""
        a brave mouse, a lonely lighthouse keeper, a clumsy dragon, a young inventor, a lost kitten, a talking tree
        a retired pirate, a robot who wants to paint, a girl who collects clouds, two rival bakers, a shy giant
        a knight without a horse, an old clockmaker, a curious astronaut, a boy with a magic pencil, a snail explorer
        a grumpy wizard, a princess who fixes engines, a stray dog, a musical whale, a detective cat, a tiny elephant
        a farmer and a scarecrow, twins who share a secret, a fisherman, a librarian at night, a postman in the snow
        a gardener on Mars, a violin without strings, an honest thief, a hedgehog with a plan, a sleepy owl
        an ant with big dreams, a cook who lost her taste, a dog who learns to read, a bored king, a kind witch
        an old sailor and his parrot, a shepherd, a runaway balloon, a girl and her grandfather, a lost robot
        a spy who hates secrets, a train driver, a pair of mittens, a young doctor, a forgetful teacher
        a time traveller, a baker's apprentice, a shipwrecked sailor, a mapmaker, a glass blower, a nervous ghost
        """),
    "setting": _lines("""
        in a small village, on a distant planet, in a forgotten library, during a long winter, at the bottom of the sea
        on a night train, in a desert town, in the mountains, at a country fair, on a floating island, in an old castle
        in a city of bridges, at the edge of a forest, on the last day of school, during a thunderstorm
        """),
    "program": _lines("""
        reverses a string, multiplies two matrices, finds the largest number in a list, counts the vowels in a text
        checks whether a number is prime, computes the factorial of a number, sorts a list of words by length
        removes duplicates from a list, converts Celsius to Fahrenheit, counts the words in a file
        merges two sorted lists
        computes the average of a list, prints the Fibonacci numbers, finds the common elements of two lists
        checks whether two words are anagrams, flattens a nested list, reads a CSV file, writes a dictionary to JSON
        validates an email address, generates a random password, counts how often each letter occurs
        rotates a list by n places, finds the second largest number, transposes a matrix, implements a binary search
        implements a stack, implements a queue, computes the greatest common divisor, converts a number to binary
        checks whether a year is a leap year, splits a list into chunks, capitalizes every word of a sentence
        sums the digits of a number, finds the longest word in a sentence, simulates rolling two dice
        measures the time a function takes, downloads a web page, renames all files in a folder
        draws a multiplication table
        inverts a dictionary, computes compound interest, finds missing numbers in a sequence
        groups words by first letter
        """),
    "code_language": ("Python", "JavaScript", "Java", "C", "Go", "Ruby"),
    "activity": _lines("""
        learning a new language, saving money, cooking at home, growing tomatoes, writing a diary, running a marathon
        preparing for a job interview, planning a birthday party, moving to a new city, adopting a dog
        studying for an exam
        painting a room, repairing a bicycle, reading more books, making new friends, sleeping better, giving a speech
        starting a small business, learning the guitar, packing for a journey, organizing a desk, teaching children
        taking better photographs, hiking in the mountains, baking bread, brewing coffee, cleaning the kitchen
        working from home, writing a short story, staying motivated, reducing waste, meeting a deadline, hosting dinner
        """),
    "things": _lines("""
        healthy breakfasts, board games, European capitals, musical instruments, famous scientists, kitchen tools
        renewable energy sources, farm animals, kinds of clouds, outdoor games for children, vegetarian dinners
        hobbies for rainy days, indoor plants, programming languages, rivers of the world, ways to say thank you
        gifts for a teacher, safety rules for cyclists, inventions of the last century, famous paintings, spices
        exercises without equipment, questions for an interview, traditional dances, desserts, birds, trees, gemstones
        science experiments at home, books for teenagers, languages of Asia, team sports, uses of baking soda
        """),
}

TEMPLATES: tuple[Template, ...] = tuple(
    Template(kind, text, over)
    for kind, over, texts in (
        (
            "question",
            "subject",
            """What is {}?|How would you explain {} to a beginner?|Why does {} matter?|Explain {} in simple words.
            What should everyone know about {}?|Can you tell me about {}?|What are the main ideas behind {}?
            What are the advantages and disadvantages of {}?|How has {} changed over time?|What is the history of {}?
            Give a short explanation of {}.|What are common misunderstandings about {}?|How does {} affect daily life?
            I have to give a talk about {}. What should I say?|Describe {} in one paragraph.
            What is surprising about {}?
            What is an example of {} in everyday life?|Explain {} step by step.|Who was important for {} and why?
            How do scientists study {}?|What would the world be like without {}?|Is {} dangerous?|Teach me about {}.""",
        ),
        (
            "question",
            "activity",
            """How do I get better at {}?|What is the best way of {}?|Why do people find {} difficult?
            What do I need for {}?|Give me some advice about {}.|What mistakes do people make when {}?
            How much time does {} take?|Is {} worth the effort?|What are the benefits of {}?""",
        ),
        (
            "story",
            "hero",
            """Tell me a story about {}.|Write a short story about {}.|Write a funny story about {}.
            Write a fairy tale about {}.|Write a poem about {}.|Invent an adventure of {}.|Begin a novel about {}.
            Write a dialogue between {} and a stranger.|Tell a story with a surprising end about {}.
            Write a letter from {} to an old friend.|Write a scary but short story about {}.""",
        ),
        (
            "story",
            "setting",
            """Write a story that happens {}.|Describe a morning {}.|Write a mystery that takes place {}.
            Tell me about two friends who meet {}.|Write a scene of a film that is set {}.""",
        ),
        (
            "code",
            "program",
            """Write a Python function that {}.|Write a program that {}.|Show me Python code that {} and explain it.
            Write a JavaScript function that {}.|How do I write a function that {}?|Write a short script that {}.
            Write a Java method that {}.|Give me a well commented function that {}.|Write a test for a function that {}.
            Write a C function that {}.|What is the simplest code that {}?""",
        ),
        (
            "code",
            "code_language",
            """How do loops work in {}?|What is a variable in {}?|Show an example of error handling in {}.
            How do I read a file in {}?|Explain functions in {}.|How do I sort an array in {}?
            Write hello world in {}.""",
        ),
        (
            "summary",
            "subject",
            """Summarize what is known about {}.|Give me a summary of {} in three sentences.
            Sum up {} for a busy reader.
            Write a short abstract about {}.|Summarize the history of {} briefly.|In two sentences, what is {}?""",
        ),
        (
            "list",
            "things",
            """List five {}.|List ten {}.|Give me a list of {}.|Name some {} and describe each in a sentence.
            Make a numbered list of {}.|What are the most popular {}?|Suggest three {}.""",
        ),
        (
            "list",
            "activity",
            """List seven tips for {}.|Make a checklist for {}.|Give me five reasons for {}.|List the steps of {}.
            Write a plan for {} with one line per day.|Name the three most important rules of {}.""",
        ),
        (
            "list",
            "subject",
            """List five facts about {}.|Give three examples that have to do with {}.
            List key terms about {} with meanings.
            Write five quiz questions about {}.|List important dates in the history of {}.""",
        ),
        (
            "multi-turn",
            "subject",
            """Let us talk about {}. What would you begin with?|I want to learn about {}. Where do I start?
            Ask me a question about {}.|Hello! Do you know anything about {}?
            Quick question about {}: why is it important?""",
        ),
    )
    for text in (part.strip() for line in texts.split("\n") for part in line.split("|"))
    if text
)

BEGINNINGS: tuple[Template, ...] = tuple(
    Template(kind, text, over)
    for kind, over, texts in (
        (
            "summary",
            "subject",
            """Summarize the following text: In recent years, {}|Summarize this paragraph in one sentence: {}
            Please shorten this text about {}:|What are the main points of this article about {}?
            Summarize this for a child: The story of {}|Give this passage about {} a title:""",
        ),
        (
            "summary",
            "setting",
            """Summarize this story in two sentences: Once {}|Shorten this report: The meeting took place {}""",
        ),
        (
            "editing",
            "activity",
            """Rewrite this text in simple language: When you think of {}|Correct the mistakes in this text about {}:
            Repeat the following instructions for {} with shorter sentences:
            Make this email about {} more polite: Dear""",
        ),
        (
            "code",
            "program",
            """I wrote this function that {}:|Explain this code that {}:|Find the bug in this program that {}:""",
        ),
        (
            "question",
            "subject",
            """I read that {}|Why do some people say that {}|What is the difference between {} and""",
        ),
        ("story", "hero", """Continue this story: {}|Write the next paragraph. There once was {}"""),
        ("list", "things", """I need a list of {} that|Compare these {}:|Sort these {} by size:"""),
        ("multi-turn", "activity", """I have a problem with {}.|Yesterday I began {} and"""),
    )
    for text in (part.strip() for line in texts.split("\n") for part in line.split("|"))
    if text
)

FOLLOW_UPS: tuple[str, ...] = tuple(
    line.strip()
    for line in """
    Can you explain that in simpler words?|Give me an example.|Why is that?|Tell me more about the first point.
    Make it shorter.|What happens next?|Can you write that as a list?|Are you sure?|How does that work in practice?
    Now explain it to a child.|What is the most important part?|Rewrite it in a friendlier tone.
    And what about the costs?
    Can you add a comment to every line?|Thanks! What should I do first?|Which of these is the best?|Continue.
    What are the risks?|Summarize your answer in one sentence.|Who discovered that?|Compare the first two.
    Can you give me three more?|What do you mean by that?|Write another one.|How long does it take?
    """.replace("\n", "|").split("|")
    if line.strip()
)

RAW_OPENINGS: tuple[str, ...] = (
    "The history of {}",
    "{} is one of the",
    "Chapter 1\n\n",
    "Once upon a time",
    "In this lesson, we will learn about {}.",
    "Abstract\n\n",
    "# {}\n\n",
    "def ",
    "Question: What is {}?\nAnswer:",
    "Dear reader,",
    "A beginner's guide to {}\n\n",
    "1.",
)


def fill(template: Template, topic: str) -> str:
    """The text of a template, its first letter a capital."""
    text = template.text.replace("{}", topic)
    return text[:1].upper() + text[1:]


def normal_form(text: str) -> str:
    """Letters and digits of a prompt, in lower case: prompts that differ in nothing else count as the same."""
    return re.sub(r"[\W_]+", " ", text.lower()).strip()


def all_turns() -> Iterator[str]:
    """Every user turn, whole or begun, that the templates can give."""
    for template in TEMPLATES + BEGINNINGS:
        for topic in TOPICS[template.over]:
            yield fill(template, topic)
    yield from FOLLOW_UPS
